"""`evenkeel eval plan` from files to exit code."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from evenkeel.cli import main
from evenkeel_evals.compare.calibration import Calibration
from evenkeel_evals.dataset.dataset import load_dataset


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "sums"
    folder.mkdir()
    rows = [
        {"id": f"q{i}", "messages": [{"role": "user", "content": "?"}], "reference": "x"}
        for i in range(300)
    ]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "sums.toml").write_text('version = "1"\n')
    return folder


def test_a_calibration_with_other_items_is_named(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = Calibration(
        load_dataset(dataset).content_hash, "", 300, 1, 0.1, {}, {}, 20, 0, (0, 0.1)
    )
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(asdict(measured)))
    flags = ["eval", "plan", str(dataset), "--gate", "accuracy>=-5%", "--calibration", str(path)]
    assert main(flags) == 0
    assert capsys.readouterr().err == ""
    with (dataset / "sums.jsonl").open("a") as file:
        file.write(
            '{"id": "new", "messages": [{"role": "user", "content": "?"}], "reference": "y"}'
        )
    assert main(flags) == 0
    out, err = capsys.readouterr()
    assert "calibration.json was measured with other items than sums has now" in err
    assert "301 pairs" in out
