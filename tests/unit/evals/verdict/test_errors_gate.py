"""Requests that fail on one side are always judged and never pass; timeouts are long latencies."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from evenkeel_evals.ask.answers import Answer, AnsweredPair, LatencyMetric
from evenkeel_evals.ask.client import Reply
from evenkeel_evals.scorers.base import Score
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.finished_run import Outcome
from evenkeel_evals.verdict.gate_verdicts import OVERALL, judge
from evenkeel_evals.verdict.gates import ErrorGate, parse_gates, with_errors
from evenkeel_evals.verdict.latency_effects import Latencies
from evenkeel_evals.verdict.measure import measure
from tests.unit.evals.finished_run import finish as finish_run

MakePair = Callable[..., AnsweredPair]
GATES = with_errors(parse_gates("accuracy>=-1%, p95_e2e<=+5%, shift_e2e<=+3%"))


def timed_out(pair: AnsweredPair, letter: str, limit_s: float = 30.0) -> AnsweredPair:
    reply = Reply(0, 1, error="too late", ttft_s=limit_s, e2e_s=limit_s, has_timed_out=True)
    answer = Answer(reply, Score.unscored("too late"), "1" * 32, "2" * 16)
    return replace(pair, b=answer) if letter == "B" else replace(pair, a=answer)


def finish(pairs: list[AnsweredPair], allows_inconclusive: bool = False) -> Outcome:
    return finish_run(pairs, GATES, allows_inconclusive=allows_inconclusive)


def test_every_run_has_the_gate_once() -> None:
    assert [gate.text for gate in with_errors(parse_gates("accuracy>=-1%"))] == [
        "accuracy>=-1%",
        "errors<=+1%",
    ]
    named = with_errors(parse_gates("errors<=+3%, accuracy>=-1%"))
    assert named[0] == ErrorGate("errors<=+3%", 0.03) and len(named) == 2


@pytest.mark.parametrize("count", [1, 5, 400])
def test_a_candidate_that_never_fails_is_not_held_back(make_pair: MakePair, count: int) -> None:
    (gate,) = parse_gates("errors<=+1%")
    pairs = [make_pair(i, i % 3 > 0, True) for i in range(count)]
    assert judge([gate], pairs, 0).verdict is Verdict.NO_WORSE
    failing = [make_pair(i, None if i % 3 == 0 else True, True) for i in range(count)]
    assert judge([gate], failing, 0).verdict in (Verdict.NO_WORSE, Verdict.BETTER)


@pytest.mark.parametrize(
    ("failed", "count", "verdict", "code"),
    [
        (4, 120, Verdict.INCONCLUSIVE, 3),
        (8, 400, Verdict.REGRESSED, 1),
        (3, 400, Verdict.NO_WORSE, 0),
        (1, 20, Verdict.INCONCLUSIVE, 3),
    ],
)
def test_failures_beyond_the_tolerance_never_pass(
    make_pair: MakePair, failed: int, count: int, verdict: Verdict, code: int
) -> None:
    pairs = [make_pair(i, True, None if i < failed else True) for i in range(count)]
    outcome = finish(pairs, allows_inconclusive=True)
    found = {r.metric: r.verdict for r in outcome.results if r.slice_name == OVERALL}
    assert found["errors"] is verdict
    assert outcome.decision.exit_code == code, outcome.decision.headline
    if code == 3:
        assert f"{failed} failed on the candidate only" in outcome.decision.headline


def test_failures_on_both_sides_are_no_regression(make_pair: MakePair) -> None:
    (gate,) = parse_gates("errors<=+1%")
    pairs = [make_pair(i, None if i % 10 else True, None if i % 10 else True) for i in range(200)]
    judgement = judge([gate], pairs, 0)
    assert judgement.verdict is Verdict.NO_WORSE
    effect = judgement.results[0].effect
    assert effect.lower is not None and effect.upper is not None
    assert -0.05 < effect.lower < 0 < effect.upper < 0.05
    assert effect.p_worse is None


def test_failures_on_one_slice_are_found(make_pair: MakePair) -> None:
    (gate,) = parse_gates("errors<=+10%")
    pairs = [make_pair(i, True, None if i < 12 else True, tags=("long",)) for i in range(12)]
    pairs += [make_pair(i, tags=("short",)) for i in range(12, 500)]
    judgement = judge([gate], pairs, 0)
    assert [r.slice_name for r in judgement.regressed] == ["long"]


def test_a_time_out_is_a_latency_of_at_least_the_limit(make_pair: MakePair) -> None:
    p95, shift = parse_gates("p95_e2e<=+5%, shift_e2e<=+3%")
    plain = [make_pair(i) for i in range(400)]
    late = [timed_out(p, "B") if p.index % 4 == 0 else p for p in plain]
    latencies = Latencies.of(LatencyMetric.E2E, late)
    assert (len(latencies), latencies.b.max(), int(latencies.is_open.sum())) == (400, 30.0, 100)
    for gate in (p95, shift):
        effect = measure(gate, late, 0)
        assert effect.num_pairs == 400
        assert effect.p_worse is not None and effect.p_worse < 1e-6
        assert "timed out on the candidate only" in str(effect.note)
    assert finish(late).decision.exit_code == 1


def test_time_outs_of_the_candidate_are_beyond_any_margin(make_pair: MakePair) -> None:
    """A timeout must not look like a small loss if the limit is close to the latencies."""
    (gate,) = parse_gates("shift_e2e<=+50%")
    pairs = [timed_out(make_pair(i), "B", 1.2) if i % 2 == 0 else make_pair(i) for i in range(100)]
    effect = measure(gate, pairs, 0)
    assert effect.p_beyond is not None and effect.p_beyond > 0.4


def test_a_time_out_stays_in_the_time_of_a_token(make_pair: MakePair) -> None:
    """Even a timeout without text counts: its time per token is at least the whole timeout."""
    (gate,) = parse_gates("shift_tpot<=+5%")
    plain = [with_tpot(make_pair(i)) for i in range(400)]
    pairs = [timed_out(p, "B") if p.index % 4 == 0 else p for p in plain]
    latencies = Latencies.of(LatencyMetric.TPOT, pairs)
    assert (len(latencies), latencies.b.max(), int(latencies.is_open.sum())) == (400, 30.0, 100)
    effect = measure(gate, pairs, 0)
    assert effect.p_worse is not None and effect.p_worse < 1e-6
    assert "timed out on the candidate only" in str(effect.note)


@pytest.mark.parametrize("gate_text", ["p95_tpot<=+5%", "shift_tpot<=+5%"])
@pytest.mark.parametrize("count", [12, 100])
def test_time_outs_of_the_baseline_hide_no_slower_tokens(
    make_pair: MakePair, gate_text: str, count: int
) -> None:
    """A baseline that timed out before its first text has no time per token."""
    (gate,) = parse_gates(gate_text)
    pairs = [with_tpot(make_pair(i), 0.1 + i % 7 / 1000, 1.1) for i in range(400)]
    assert judge([gate], pairs, 0).verdict is Verdict.REGRESSED
    gone = [timed_out(p, "A") if p.index < count else p for p in pairs]
    assert judge([gate], gone, 0).verdict is Verdict.REGRESSED
    both = [timed_out(timed_out(p, "A"), "B") if p.index < count else p for p in pairs]
    assert judge([gate], both, 0).verdict is Verdict.REGRESSED
    assert len(Latencies.of(LatencyMetric.TPOT, gone)) == 400 - count


def with_tpot(pair: AnsweredPair, tpot_s: float = 0.1, ratio: float = 1.0) -> AnsweredPair:
    a = replace(pair.a, reply=replace(pair.a.reply, tpot_s=tpot_s))
    b = replace(pair.b, reply=replace(pair.b.reply, tpot_s=tpot_s * ratio))
    return replace(pair, a=a, b=b)


def test_both_timed_out_is_no_difference(make_pair: MakePair) -> None:
    pairs = [timed_out(timed_out(make_pair(i), "A"), "B") for i in range(20)]
    pairs += [make_pair(i) for i in range(20, 200)]
    latencies = Latencies.of(LatencyMetric.E2E, pairs)
    assert not latencies.is_open.any() and latencies.log_ratios().max() == 0


def test_kept_answers_say_nothing_of_failures(make_pair: MakePair) -> None:
    """Only successes are cached: compared with fresh requests, they would never seem to fail."""
    (gate,) = parse_gates("errors<=+1%")
    pairs = [make_pair(i, True, None if i % 20 == 0 else True) for i in range(400)]
    kept = [replace(p, a=replace(p.a, reply=replace(p.a.reply, is_cached=True))) for p in pairs]
    assert judge([gate], pairs, 0).verdict is Verdict.REGRESSED
    assert judge([gate], kept, 0).verdict is Verdict.NO_WORSE
    assert measure(gate, kept, 0).note == "every answer came from the cache"


@pytest.mark.parametrize(("a", "b", "count"), [(24, 28, 400), (6, 7, 100)])
def test_exactly_the_tolerance_passes(make_pair: MakePair, a: int, b: int, count: int) -> None:
    (gate,) = parse_gates("errors<=+1%")
    pairs = [
        make_pair(i, None if i < a else True, None if count - i <= b else True)
        for i in range(count)
    ]
    assert judge([gate], pairs, 0).verdict is Verdict.NO_WORSE


def test_a_failure_of_the_baseline_takes_no_power_from_accuracy(make_pair: MakePair) -> None:
    gates = with_errors(parse_gates("accuracy>=-1%"))
    pairs = [make_pair(i, True, i >= 6) for i in range(60)]
    pairs[-1] = make_pair(59, None, True)
    assert judge(gates, pairs, 0).verdict is Verdict.REGRESSED
