"""Arguments that would hang or mean something else are refused in one line."""

from pathlib import Path

import pytest

from evenkeel.cli import main
from evenkeel_collector.commands.collect import COLLECT
from evenkeel_collector.commands.slo import SLO


@pytest.mark.timeout(120)
@pytest.mark.parametrize("target", ["1e-999999999", "9" * 50, "nan", "1//2", ""])
def test_a_target_that_is_no_fraction(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["slo", "windows", "--target", target], [SLO]) == 2
    assert "--target has" in capsys.readouterr().err


def test_a_percentage_is_a_fraction(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for target in ("0.999", "99.9%"):
        assert main(["slo", "windows", "--target", target, "--json"], [SLO]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert main(["slo", "windows", "--target", "100%"], [SLO]) == 2
    assert "--target is 100%" in capsys.readouterr().err


def test_a_store_that_is_no_address(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--clickhouse", "junk", "--http-port", "0", "--grpc-port", "0"]
    assert main(["collect", *flags, "--data-dir", str(tmp_path)], [COLLECT]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'junk'" in line


def test_a_missing_slo_file_is_found_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "data"
    flags = ["--slos", str(tmp_path / "missing.yaml"), "--http-port", "0", "--grpc-port", "0"]
    flags += ["--query-port", "0", "--data-dir", str(folder)]
    assert main(["collect", *flags], [COLLECT]) == 2
    assert "missing.yaml cannot be read" in capsys.readouterr().err
    assert not folder.exists()
