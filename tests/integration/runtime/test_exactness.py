"""Sampled answers with drafts follow the model's own distribution: short form of the bench."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import ROOT, source_path

pytestmark = pytest.mark.integration

MENDED, UNMENDED = "bench.exactness", "tests.fixtures.unmended_exactness"
SOURCES = ("retrieval", "prompt", "cache", "vllm-ngram", "draft-model")


def run(
    folder: Path, module: str, sources: str, samples: int, *more: str
) -> tuple[int, dict[str, Any], str]:
    """Run the bench; return its exit code, what it measured, and what was logged."""
    output = folder / "exactness.json"
    flags = ("--sources", sources, "--prefixes", "2", "--samples", str(samples))
    done = subprocess.run(
        [sys.executable, "-m", module, *flags, *more, "--json", str(output)],
        cwd=ROOT,
        env=dict(os.environ) | {"PYTHONPATH": source_path(), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    assert output.is_file(), done.stderr[-4000:]
    return done.returncode, json.loads(output.read_text()), done.stderr


def test_sampled_answers_with_drafts_have_the_models_own_distribution(tmp_path: Path) -> None:
    code, result, log = run(tmp_path, MENDED, ",".join(SOURCES), 80)
    assert "drafting stopped for sampled requests" not in log
    assert result["different"] == 0
    assert code == 0
    for source in SOURCES:
        own = [each for each in result["comparisons"] if each["source"] == source]
        # Really compared, and really verified: some drafts were taken and some refused.
        assert sum(each["cells"] > 1 for each in own) >= 4, source
        accepted = sum(each["accepted_ratio"] * each["samples"] for each in own)
        assert 0.02 < accepted / sum(each["samples"] for each in own) < 0.98, source


def test_vllms_kernels_as_they_are_do_not_pass(tmp_path: Path) -> None:
    code, result, _ = run(tmp_path, UNMENDED, "prompt", 60)
    assert code == 1
    assert result["different"] >= 2


def test_the_watch_takes_drafts_away_from_sampled_requests(tmp_path: Path) -> None:
    _, result, log = run(tmp_path, UNMENDED, "prompt", 40, "--watched")
    assert log.count("drafting stopped for sampled requests") == 1
    # Of 480 requests: most were served after the alarm, without drafts.
    assert sum(each["samples"] for each in result["comparisons"]) < 240
