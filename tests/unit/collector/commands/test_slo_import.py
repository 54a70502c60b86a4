"""The commands around files of other tools: output, standard error and exit code."""

import json
from pathlib import Path

import pytest

from evenkeel.cli import main

FOREIGN = """
apiVersion: openslo/v1
kind: SLO
metadata: {name: theirs}
spec:
  indicator: {spec: {ratioMetric: {total: {metricSource: {type: Datadog, spec: {query: x}}}}}}
  timeWindow: [{duration: 4w, isRolling: true}]
  objectives: [{target: 0.99}]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "theirs.yaml").write_text(FOREIGN)
    return tmp_path / "theirs.yaml"


def test_check_says_what_is_not_evaluated(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["slo", "check", str(path)]) == 0
    assert "not evaluated: SLO 'theirs': its metric source is 'Datadog'" in capsys.readouterr().out
    assert main(["slo", "check", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [slo["name"] for slo in answer["not_evaluated"]] == ["theirs"]


@pytest.mark.parametrize("verb", ["check", "import"])
def test_strict_refuses_it(path: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["slo", verb, "--strict", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and "Datadog" in captured.err


def test_import_prints_the_file_alone(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["slo", "import", str(path)]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("apiVersion: openslo/v1\n")
    assert "not evaluated: SLO 'theirs'" in captured.err


def test_counts_from_elsewhere_replay_an_slo_that_is_not_evaluated(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = path.parent / "minutes.csv"
    events.write_text("minute,total,bad\n" + "".join(f"{m},10,5\n" for m in range(1000, 1100)))
    command = ["slo", "backtest", "--slo", str(path), "--events", str(events), "--json"]
    assert main(command) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["sli"] == 0.5
    assert answer["alerts"][0]["slo"] == "theirs"


@pytest.mark.parametrize(
    "verb", [["backtest", "--days", "1"], ["export", "--prometheus"]], ids=["backtest", "export"]
)
def test_a_file_without_an_slo_to_evaluate_is_one_line(
    path: Path, verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["slo", verb[0], "--slo", str(path), *verb[1:]]) == 2
    assert "has no SLO that evenkeel evaluates" in capsys.readouterr().err
