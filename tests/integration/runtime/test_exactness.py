"""Sampled answers with drafts follow the model's own distribution: short form of the bench."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.fixtures.exactness_runs import BEGINS, MENDED, RUNS, SOURCES, UNMENDED, WATCHED
from tests.fixtures.python_process import run_on_one_thread


@dataclass(frozen=True, slots=True)
class Run:
    """The bench's exit code, what it measured, and what was logged."""

    code: int
    result: dict[str, Any]
    log: str


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """What came out of each run; see `exactness_runs`."""
    folder = tmp_path_factory.mktemp("exactness")
    done = run_on_one_thread("tests.fixtures.exactness_runs", folder)
    assert done.returncode == 0, done.stderr[-4000:]
    codes = json.loads((folder / "codes.json").read_text())
    logs = dict(part.split("\n", 1) for part in done.stderr.split(BEGINS)[1:])
    return {
        name: Run(codes[name], json.loads((folder / f"{name}.json").read_text()), logs[name])
        for name in RUNS
    }


def test_sampled_answers_with_drafts_have_the_models_own_distribution(runs: dict[str, Run]) -> None:
    result = runs[MENDED].result
    assert "drafting stopped for sampled requests" not in runs[MENDED].log
    assert result["different"] == 0
    assert runs[MENDED].code == 0
    for source in SOURCES:
        own = [each for each in result["comparisons"] if each["source"] == source]
        # Really compared, and really verified: some drafts were taken and some refused.
        assert sum(each["cells"] > 1 for each in own) >= 4, source
        accepted = sum(each["accepted_ratio"] * each["samples"] for each in own)
        assert 0.02 < accepted / sum(each["samples"] for each in own) < 0.98, source


def test_vllms_kernels_as_they_are_do_not_pass(runs: dict[str, Run]) -> None:
    assert runs[UNMENDED].code == 1
    assert runs[UNMENDED].result["different"] >= 2


def test_the_watch_takes_drafts_away_from_sampled_requests(runs: dict[str, Run]) -> None:
    assert runs[WATCHED].log.count("drafting stopped for sampled requests") == 1
    # Of 480 requests: most were served after the alarm, without drafts.
    assert sum(each["samples"] for each in runs[WATCHED].result["comparisons"]) < 240
