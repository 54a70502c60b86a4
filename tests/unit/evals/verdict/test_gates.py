"""The grammar of gates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.errors import ConfigurationError
from evenkeel_evals.ask.answers import LatencyMetric
from evenkeel_evals.verdict.gates import AccuracyGate, LatencyGate, parse_gates


def test_the_example_of_the_help() -> None:
    accuracy, p95, shift = parse_gates("accuracy>=-1%, p95_ttft<=+5%, shift_ttft<=+3%")
    assert accuracy == AccuracyGate("accuracy>=-1%", 0.01)
    assert p95 == LatencyGate("p95_ttft<=+5%", LatencyMetric.TTFT, 0.95, 0.05)
    assert shift == LatencyGate("shift_ttft<=+3%", LatencyMetric.TTFT, None, 0.03)


@pytest.mark.parametrize(
    ("text", "written", "margin"),
    [
        ("accuracy >= -0.5 %", "accuracy>=-0.5%", 0.005),
        ("accuracy≥−2%", "accuracy>=-2%", 0.02),
        ("accuracy>=0%", "accuracy>=+0%", 0.0),
        ("p99.9_e2e<=10%", "p99.9_e2e<=+10%", 0.1),
        ("p50_tpot≤+0%", "p50_tpot<=+0%", 0.0),
    ],
)
def test_other_spellings(text: str, written: str, margin: float) -> None:
    (gate,) = parse_gates(text)
    assert gate.text == written
    assert gate.margin == pytest.approx(margin)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("accuracy", "is not a gate"),
        ("accuracy>=-1", "percent sign, such as -1%"),
        ("accuracy>=-0.01", "percent sign, -1% if it is a fraction, or -0.01%"),
        ("p95_ttft<=0.05", "percent sign, 5% if it is a fraction, or 0.05%"),
        ("p95_ttft<=+0", r"percent sign, such as \+0%"),
        ("accuracy<=-1%", "expected >="),
        ("accuracy>-1%", "expected >="),
        ("accuracy>=+1%", "demands an improvement"),
        ("accuracy>=-100%", "cannot be exceeded"),
        ("p95_ttft>=5%", "expected <="),
        ("p95_ttft<=-5%", "demands an improvement"),
        ("p0_ttft<=5%", "not a quantile"),
        ("p95_latency<=5%", "is unknown"),
        ("speed<=5%", "is unknown"),
        ("accuracy>=-1%, accuracy>=-2%", "accuracy twice"),
        ("accuracy>=-1%; p95_ttft<=5%", "is not a gate"),
    ],
)
def test_a_gate_that_makes_no_sense_says_why(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        parse_gates(text)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        gates = parse_gates(text)
    except ConfigurationError:
        return
    assert parse_gates(", ".join(gate.text for gate in gates)) == gates
