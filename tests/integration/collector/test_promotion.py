"""A stored run promotes through the collector; the command's moves are in the same audit."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from evenkeel.prompts.registry import Move, PromptRegistry, PromptVersion, digest
from tests.fixtures.collector_process import PROTOBUF, post, running_collector, wait_for
from tests.fixtures.otlp_payload import trace_request

OLD, NEW = "You answer.", "You answer in one word."


def gate(run_id: str, verdict: str, **changes: str) -> dict[str, Any]:
    return {
        "evenkeel.eval.run_id": run_id,
        "evenkeel.eval.gate": "accuracy>=-1%",
        "evenkeel.eval.slice": "overall",
        "evenkeel.eval.verdict": "no worse",
        "evenkeel.eval.run_verdict": verdict,
        "evenkeel.eval.baseline_text": digest(OLD),
        "evenkeel.eval.candidate_text": digest(NEW),
    } | changes


def test_a_stored_run_promotes_and_the_command_rolls_back(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    (prompts / "support.toml").write_text(f'system = "{NEW}"\n')
    registry = PromptRegistry(prompts)
    registry.keep(PromptVersion("support", digest(OLD), OLD))
    registry.move("support", Move(1, "production", digest(OLD), "the first", None))
    runs = {
        "unmeasured": gate("unmeasured", "could not measure"),
        "earlier": gate("earlier", ""),
        "other": gate("other", "better", **{"evenkeel.eval.candidate_text": "0123456789ab"}),
        "forged": gate("forged", "no worse", **{"evenkeel.tenant": "acme"}),
        "passed": gate("passed", "no worse"),
    }
    # A tenant's gate does not spoil a run either.
    spoiling = gate("passed", "worse", **{"evenkeel.tenant": "acme"})
    with running_collector(tmp_path / "data", ("--prompts-dir", str(prompts))) as collector:
        for attributes in (*runs.values(), spoiling):
            body = trace_request(1, attributes, name="evenkeel.evaluation.run")
            assert post(collector, body.SerializeToString(), PROTOBUF).status_code == 200
        wait_for(lambda: collector.rows("SELECT count() FROM eval_results") == [(len(runs) + 1,)])
        answers = {}
        for run_id in runs:
            order = {"prompt": "support", "version": digest(NEW), "run_id": run_id, "by": "ann"}
            answers[run_id] = httpx.post(f"{collector.http_url}/api/promote", json=order)
        assert {run_id: answer.status_code for run_id, answer in answers.items()} == {
            "unmeasured": 400, "earlier": 400, "other": 400, "forged": 400, "passed": 200
        }  # fmt: skip
        assert "could not measure" in answers["unmeasured"].text
        assert "run it again" in answers["earlier"].text
        assert "other than support@" in answers["other"].text
        assert registry.labels("support") == {"production": digest(NEW)}
        subprocess.run(
            [sys.executable, "-m", "evenkeel", "prompts", "rollback", "support", "--by", "bob",
             "--prompts-dir", str(prompts), "--data-dir", str(tmp_path / "data")],
            check=True,
        )  # fmt: skip
        entries = httpx.get(f"{collector.http_url}/api/audit").json()["entries"]
    assert registry.labels("support") == {"production": digest(OLD)}
    assert [(entry["by"], entry["action"], entry["details"]["result"]) for entry in entries] == [
        (by, action, {"label": "production", "is": digest(now), "was": digest(before)})
        for by, action, now, before in (
            ("bob", "rollback", OLD, NEW),
            ("ann", "promote", NEW, OLD),
        )
    ]
