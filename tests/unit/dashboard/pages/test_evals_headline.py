"""May the change ship? One sentence from a run's verdict and gates."""

from typing import Any

import pytest

from evenkeel_dashboard.pages.evals.headline import (
    candidate_name,
    drift_sentence,
    effect_words,
    evidence_words,
    gate_name,
    is_live,
    ship_sentence,
)

SIDES = ["A: support@1, demo", "B: support@2, demo"]


def gate(text: str, estimate: float | None, **fields: Any) -> dict[str, Any]:
    width = 0.05
    return {
        "gate": text, "slice": "overall", "verdict": "no worse", "estimate": estimate,
        "lower": None if estimate is None else estimate - width,
        "upper": None if estimate is None else estimate + width,
    } | fields  # fmt: skip


FASTER = gate("shift_e2e<=+5%", -0.27)


@pytest.mark.parametrize(
    ("verdict", "gates", "sentence"),
    [
        pytest.param(
            "regressed",
            [
                FASTER,
                gate("accuracy>=-3%", -0.133, verdict="regressed"),
                gate("accuracy>=-3%", -0.75, slice="extraction", verdict="regressed"),
                gate("accuracy>=-3%", 0.01, slice="billing"),
            ],
            "Do not ship support@2: 27% faster, 75 points worse on extraction",
            id="faster but worse on a slice",
        ),
        pytest.param(
            "regressed",
            [gate("accuracy>=-3%", -0.133, verdict="regressed")],
            "Do not ship support@2: 13.3 points worse",
            id="worse on all items",
        ),
        pytest.param(
            "better",
            [FASTER, gate("accuracy>=-3%", 0.01)],
            "Ready to ship support@2: 27% faster, about as accurate",
            id="faster and as accurate",
        ),
        pytest.param(
            "worse",
            [gate("p95_ttft<=+5%", 0.12), gate("accuracy>=-20%", -0.1)],
            "Worse, but within tolerance: you may ship support@2: 12% slower, 10 points worse",
            id="worse within tolerance",
        ),
        pytest.param(
            "inconclusive",
            [gate("p50_ttft<=+5%", 0.01), gate("accuracy>=-1%", None)],
            "Too little evidence to ship support@2: about as fast",
            id="nothing is certain",
        ),
        pytest.param(
            "regressed",
            [gate("errors<=+1%", 0.2, verdict="regressed")],
            "Do not ship support@2: 20 points more failed requests",
            id="requests fail",
        ),
        pytest.param(
            "inconclusive",
            [gate("errors<=+1%", 0.04, verdict="inconclusive"), gate("accuracy>=-3%", 0.01)],
            "Too little evidence to ship support@2: about as accurate, 4 points more failed "
            "requests",
            id="too many requests fail",
        ),
        pytest.param(
            "regressed",
            [FASTER, gate("cost<=+5%", 0.3, verdict="regressed")],
            "Do not ship support@2: 27% faster, 30% more expensive",
            id="the bill",
        ),
        pytest.param(
            "better", [gate("cost<=+5%", -0.2)], "Ready to ship support@2: 20% cheaper", id="cheap"
        ),
        pytest.param(
            "regressed",
            [
                FASTER,
                gate("p95_ttft<=+5%", 0.4, verdict="regressed"),
                gate("p95_ttft<=+5%", 0.9, slice="long", verdict="regressed"),
            ],
            "Do not ship support@2: 27% faster, p95_ttft 90% slower on long",
            id="slow at the tail",
        ),
        pytest.param(
            "could not measure",
            [FASTER],
            "Could not measure support@2: 27% faster",
            id="unmeasured",
        ),
        pytest.param(
            "regressed",
            [gate(f"{name}<=+5%", None, verdict="regressed") for name in ("p95_ttft", "cost")],
            "Do not ship support@2",
            id="stored without figures",
        ),
        pytest.param("", [], "No verdict about support@2", id="no gate"),
    ],
)
def test_the_sentence(verdict: str, gates: list[dict[str, Any]], sentence: str) -> None:
    assert ship_sentence(verdict, SIDES, gates) == sentence


@pytest.mark.parametrize(
    ("sides", "name"),
    [
        pytest.param(SIDES, "support@2", id="another prompt"),
        pytest.param(["A: p@1, small", "B: p@1, large"], "large", id="another model"),
        pytest.param(["A: p@1, m", "B: p@1, m"], "the candidate", id="another configuration"),
        pytest.param(["B: no prompt@?, m"], "m", id="no prompt"),
        pytest.param(["B: p@?, m"], "the candidate", id="a version unknown"),
        pytest.param([], "the candidate", id="no sides"),
        pytest.param(["A: p@1, m", f"B: p@{'a' * 40}, m"], f"p@{'a' * 12}", id="a digest"),
    ],
)
def test_the_candidate_is_named_by_what_changed(sides: list[str], name: str) -> None:
    assert candidate_name(sides) == name


def test_accuracy_is_in_points_and_latency_is_relative() -> None:
    assert effect_words("accuracy>=-1%", -0.133) == "−13.3 pp"
    assert effect_words("p95_ttft<=+5%", -0.133) == "−13.3%"
    assert effect_words("errors<=+1%", None) == "no data"
    assert gate_name("p95_ttft<=+5%") == "p95_ttft"


@pytest.mark.parametrize(
    ("note", "words"),
    [
        (
            "16 lost, 0 gained; exact McNemar p = 3.1e-05",
            "16 answers got worse, 0 better (p < 0.001)",
        ),
        (
            "3 lost, 1 gained; exact McNemar over 9 clusters p = 0.62",
            "3 answers got worse, 1 better (p = 0.62)",
        ),
        (
            "5 for the baseline, 9 for the candidate; exact McNemar p = 0.42",
            "5 preferred A, 9 B (p = 0.42)",
        ),
        ("1 lost, 2 gained; exact McNemar p = x", "1 lost, 2 gained; exact McNemar p = x"),
        ("no request failed", "no request failed"),
        (None, "–"),
    ],
)
def test_evidence_in_words(note: str | None, words: str) -> None:
    assert evidence_words(note) == words


def test_a_drift_in_production_is_no_verdict_about_a_candidate() -> None:
    low = [
        gate("judge>=90.0%", 0.832, verdict="regressed"),
        gate("pii>=99.0%", 0.97, verdict="regressed"),
    ]
    assert drift_sentence(low) == (
        "Answers in production are not good enough: judge finds 83.2% right, 90.0% is required, "
        "pii finds 97% right, 99.0% is required"
    )
    assert drift_sentence([]) == "Answers in production are not good enough"
    assert is_live({"run_id": "live-support", "sides": []})
    assert not is_live({"run_id": "live-support", "sides": SIDES})
    assert not is_live({"run_id": "20261127-ab", "sides": []})
    assert effect_words("judge>=90.0%", 0.832) == "83.2%"
