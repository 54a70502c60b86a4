"""A latency change, split by server-side cause."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from evenkeel_evals.ask.answers import AnsweredPair, ServerTimes
from evenkeel_evals.verdict.gates import parse_gates
from evenkeel_evals.verdict.latency_split import split_latency

MakePair = Callable[..., AnsweredPair]


def run(
    make_pair: MakePair, a: ServerTimes, b: ServerTimes, elsewhere_s: float = 0.01
) -> tuple[list[AnsweredPair], dict[str, ServerTimes]]:
    pairs, times = [], {}
    for i in range(20):
        pair = make_pair(i)
        sides: dict[str, Any] = {}
        for letter, answer, known in (("a", pair.a, a), ("b", pair.b, b)):
            trace = f"{letter}{i:031x}"
            times[trace] = known
            whole = known.queue_s + known.prefill_s + elsewhere_s
            reply = replace(answer.reply, ttft_s=whole, e2e_s=whole + known.decode_s)
            sides[letter] = replace(answer, trace_id=trace, reply=reply)
        pairs.append(replace(pair, **sides))
    return pairs, times


@pytest.mark.parametrize(
    ("name", "b", "cause", "share"),
    [
        # A takes 0.01 + 0.1 + 0.38 + 0.01 = 0.5 s end to end: 20 tokens, 20 ms apart.
        ("five tokens more", ServerTimes(0.01, 0.1, 0.48, 25), "longer answers", 0.2),
        ("slower tokens", ServerTimes(0.01, 0.1, 0.456, 20), "decode speed", 0.152),
        ("a queue", ServerTimes(0.06, 0.1, 0.38, 20), "queue", 0.1),
        ("a longer prompt", ServerTimes(0.01, 0.2, 0.38, 20), "prefill", 0.2),
    ],
)
def test_one_cause(
    make_pair: MakePair, name: str, b: ServerTimes, cause: str, share: float
) -> None:
    pairs, times = run(make_pair, ServerTimes(0.01, 0.1, 0.38, 20), b)
    for gate in parse_gates("shift_e2e<=+5%, p50_e2e<=+5%"):
        found = split_latency(gate, pairs, times)
        assert found is not None and found.change == pytest.approx(share), name
        assert found.parts[cause] == pytest.approx(share), name
        assert sum(found.parts.values()) == pytest.approx(found.change)
        assert f"{share * 100:+.1f} from {cause}" in found.describe()


def test_length_and_speed_together_add_up(make_pair: MakePair) -> None:
    pairs, times = run(make_pair, ServerTimes(0, 0.1, 0.38, 20), ServerTimes(0, 0.1, 0.9, 31))
    (gate,) = parse_gates("shift_e2e<=+5%")
    found = split_latency(gate, pairs, times)
    assert found is not None
    # 11 tokens more at (20 + 30)/2 ms, 10 ms more on (19 + 30)/2 gaps; of 0.49 s.
    assert found.parts["longer answers"] == pytest.approx(11 * 0.025 / 0.49)
    assert found.parts["decode speed"] == pytest.approx(0.01 * 24.5 / 0.49)


def test_a_ttft_has_no_decode_and_too_little_is_none(make_pair: MakePair) -> None:
    pairs, times = run(make_pair, ServerTimes(0, 0.1, 0.4, 20), ServerTimes(0.05, 0.1, 0.9, 40))
    ttft, tpot, accuracy = parse_gates("shift_ttft<=+5%, shift_tpot<=+5%, accuracy>=-1%")
    found = split_latency(ttft, pairs, times)
    assert found is not None and set(found.parts) == {"queue", "prefill", "network and client"}
    assert split_latency(tpot, pairs, times) is None
    assert split_latency(accuracy, pairs, times) is None
    assert split_latency(ttft, pairs, dict(list(times.items())[:12])) is None
