"""`evenkeel eval run` on the real vLLM with the demo model: two prompts over the golden dataset."""

import json
from typing import Any, Protocol

from tests.checkout import ROOT
from tests.fixtures.eval_setup import run_eval

DATASET = ROOT / "golden_datasets" / "support"
GATES = "accuracy>=-1%, p95_ttft<=+25%, shift_ttft<=+25%"


class ServedModel(Protocol):
    """What the fixture `served_model` gives: a vLLM server with the demo model."""

    url: str


def run(
    url: str, baseline: str, candidate: str, *flags: str, gates: str = GATES
) -> tuple[int, dict[str, Any]]:
    done = run_eval(
        *("run", str(DATASET)),
        *("--baseline", str(DATASET / "sides" / f"{baseline}.toml")),
        *("--candidate", str(DATASET / "sides" / f"{candidate}.toml")),
        *("--url", url, "--gate", gates, "--otlp-endpoint", "none", "--json", *flags),
        timeout_s=1700,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout.count("\n") == 1, done.stderr
    return done.returncode, json.loads(done.stdout)


def results_by_slice(record: dict[str, Any], metric: str) -> dict[str, dict[str, Any]]:
    return {r["slice"]: r for r in record["results"] if r["metric"] == metric}


def test_the_short_prompt_is_caught_on_extraction(served_model: ServedModel) -> None:
    code, record = run(served_model.url, "full", "short", "--limit", "150")
    assert (code, record["verdict"]) == (1, "regressed"), record["headline"]
    accuracy = results_by_slice(record, "accuracy")
    assert accuracy["extraction"]["verdict"] == "regressed"
    assert accuracy["extraction"]["upper"] < 0
    # Faster or not is a matter of the machine; it was measured of each pair.
    assert results_by_slice(record, "shift_ttft")["overall"]["num_pairs"] == record["num_pairs"]
    assert record["num_unmeasured"] == 0


def test_a_side_against_itself_is_not_a_regression(served_model: ServedModel) -> None:
    # On accuracy: whether the same prompt is as fast twice is a matter of the machine.
    code, record = run(served_model.url, "full", "full", "--limit", "100", gates="accuracy>=-1%")
    assert code in (0, 3), record["headline"]
    assert record["verdict"] in ("better", "no worse", "inconclusive")
    # Greedy answers of one prompt differ by batch numerics at most.
    assert abs(results_by_slice(record, "accuracy")["overall"]["estimate"]) < 0.05
