"""A side that is an `evenkeel serve` configuration: the run starts it, and nothing is left."""

import json
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.checkout import ROOT
from tests.fixtures.eval_setup import run_eval

DATASET = ROOT / "golden_datasets" / "support"
SIDE = """
name = "{name}"
[serve]
model = "{model}"
flags = {flags}
[prompt]
name = "support"
[sampling]
max_tokens = 32
"""


def run(folder: Path, model: str, *flags: str) -> subprocess.CompletedProcess[str]:
    for name, own in (("plain", '["--speculate", "none"]'), ("draft", "[]")):
        text = SIDE.format(name=name, model=model, flags=own if model == "demo" else "[]")
        (folder / f"{name}.toml").write_text(text)
    return run_eval(
        *("run", str(DATASET)),
        *("--baseline", str(folder / "plain.toml"), "--candidate", str(folder / "draft.toml")),
        *("--otlp-endpoint", "none", "--json", "--allow-inconclusive", *flags),
    )


def servers() -> list[int]:
    return [p.pid for p in psutil.process_iter(["cmdline"]) if is_ours(p.info["cmdline"] or [])]


def is_ours(command: list[str]) -> bool:
    return "serve" in command and any("evenkeel-eval-" in word for word in command)


def test_a_server_that_does_not_start_is_told_and_gone(tmp_path: Path) -> None:
    done = run(tmp_path, str(tmp_path / "no-model"))
    assert done.returncode == 3, done.stderr
    assert "no model at" in done.stderr or "server-" in done.stderr
    assert "Traceback" not in done.stderr
    assert servers() == []


@pytest.mark.slow
def test_two_configurations_are_served_compared_and_ended(tmp_path: Path) -> None:
    done = run(tmp_path, "demo", "--limit", "60", "--gate", "accuracy>=-20%, shift_e2e<=+50%")
    assert done.returncode in (0, 1), done.stderr
    record = json.loads(done.stdout)
    assert (record["num_pairs"], record["num_unmeasured"]) == (60, 0)
    assert record["baseline"]["content_hash"] != record["candidate"]["content_hash"]
    assert record["baseline"]["url"] == ""
    assert servers() == []
