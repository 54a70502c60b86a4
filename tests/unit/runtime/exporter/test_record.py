"""Records and phases from what the hook saw."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenkeel.spans import Status
from evenkeel_runtime.exporter.record import FinishedRequest
from evenkeel_runtime.ledger.attribution import Ledger
from evenkeel_runtime.ledger.engine_seconds import EngineSeconds
from evenkeel_runtime.ledger.explanation import Explanation
from evenkeel_runtime.ledger.phases import find_phases
from evenkeel_runtime.wire.frames import AnswerMarks, EngineSetup
from evenkeel_runtime.wire.observation import CanaryResult, Observation, decode, encode, pack_tokens

MS = 1_000_000
ARRIVAL = 5_000 * MS


def at(time_ms: float) -> int:
    return ARRIVAL + int(time_ms * MS)


STREAMED = Observation(
    request_id="chatcmpl-1",
    model="support",
    operation="chat",
    arrival_unix_ns=1_700_000_000_000_000_000,
    arrival_ns=ARRIVAL,
    end_ns=at(102),
    reached_engine=True,
    tenant="acme",
    finish_reason="stop",
    input_tokens=12,
    output_tokens=6,
    cached_tokens=4,
    scheduled_ns=at(10),
    first_token_ns=at(38),
    last_token_ns=at(98),
    emission_ns=[at(40), at(60), at(100)],
    emission_tokens=[1, 1, 4],
    drafted_by_step=[4, 4],
    accepted_by_step=[0, 3],
)
AT_ONCE = replace(STREAMED, emission_ns=[], emission_tokens=[])


def complete(seen: Observation, max_emissions: int, ledger: Ledger | None = None) -> Observation:
    request = FinishedRequest.begin(replace(seen))
    request.explanation = None if ledger is None else Explanation(ledger)
    request.complete(max_emissions)
    return request.seen


def test_a_request_says_how_its_engine_computes() -> None:
    request = FinishedRequest.begin(replace(STREAMED))
    request.complete(100, EngineSetup("bfloat16", "fp8", 2, 1))
    attributes = request.seen.to_attributes()
    assert attributes["evenkeel.engine.dtype"] == "bfloat16"
    assert attributes["evenkeel.engine.kv_cache_dtype"] == "fp8"
    assert attributes["evenkeel.engine.tensor_parallel"] == 2
    assert "evenkeel.engine.dtype" not in complete(STREAMED, 100).to_attributes()


def test_a_request_says_what_it_cost_the_engine() -> None:
    spent = EngineSeconds(0.05, 0.01, 0.2, 0.004)
    record = complete(STREAMED, 100, Ledger({}, engine=spent))
    assert (record.engine_s, record.engine_wasted_s) == (0.05, 0.01)
    assert (record.engine_saved_prefix_s, record.engine_saved_drafts_s) == (0.2, 0.004)
    assert complete(STREAMED, 100, Ledger({})).engine_s is None


def test_all_that_an_aborted_request_cost_is_wasted_if_the_client_got_nothing() -> None:
    spent = Ledger({}, engine=EngineSeconds(0.05, 0.01))
    unseen = replace(AT_ONCE, status=Status.ABORTED, delivered_tokens=0)
    assert complete(unseen, 100, spent).engine_wasted_s == 0.05
    seen = replace(STREAMED, status=Status.ABORTED, delivered_tokens=2)
    assert complete(seen, 100, spent).engine_wasted_s == 0.01


def test_a_streamed_request() -> None:
    record = complete(STREAMED, 100)
    assert (record.queue_s, record.prefill_s, record.decode_s) == (0.01, 0.03, 0.06)
    assert (record.ttft_s, record.e2e_s, record.stall_s) == (0.04, 0.102, 0.04)
    assert record.tpot_s == pytest.approx(0.06 / 5)
    assert record.emission_time_s == [0.04, 0.06, 0.1]
    assert record.emission_tokens == [1, 1, 4]
    assert (record.drafted_tokens, record.accepted_tokens) == (8, 3)
    assert record.drafted_by_position == [2, 2, 2, 2]
    assert record.accepted_by_position == [1, 1, 1, 0]
    assert (record.tenant, record.cached_tokens, record.wasted_tokens) == ("acme", 4, None)


def test_a_request_without_a_stream_has_the_engines_times_and_no_series() -> None:
    record = complete(AT_ONCE, 100)
    assert (record.ttft_s, record.tpot_s) == (0.038, pytest.approx(0.06 / 5))
    assert (record.itl_p50_s, record.itl_p99_s, record.stall_s) == (None, None, None)
    assert record.emission_time_s == []


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(
            STREAMED,
            [("queue", 0, 10), ("prefill", 10, 40), ("decode", 40, 100)],
            id="all three",
        ),
        pytest.param(
            replace(AT_ONCE, first_token_ns=None, last_token_ns=None, status=Status.ABORTED),
            [("queue", 0, 10), ("prefill", 10, 102)],
            id="aborted in prefill",
        ),
        pytest.param(
            replace(AT_ONCE, scheduled_ns=None, first_token_ns=None, last_token_ns=None),
            [("queue", 0, 102)],
            id="aborted in the queue",
        ),
        pytest.param(replace(AT_ONCE, reached_engine=False), [], id="never reached the engine"),
        pytest.param(
            replace(STREAMED, scheduled_ns=at(-3_600_000)),
            [("decode", 40, 100)],
            id="an engine with another clock",
        ),
        pytest.param(
            replace(STREAMED, scheduled_ns=None),
            [("decode", 40, 100)],
            id="an engine that tells no times",
        ),
        pytest.param(
            replace(STREAMED, emission_ns=(at(40), at(60)), emission_tokens=[1, 0]),
            [("queue", 0, 10), ("prefill", 10, 40), ("decode", 40, 40)],
            id="an empty emission is no token",
        ),
    ],
)
def test_phases(seen: Observation, expected: list[tuple[str, float, float]]) -> None:
    phases = find_phases(seen).phases
    assert [(p.name.split(".")[1], p.start_ns, p.end_ns) for p in phases] == [
        (name, at(start), at(end)) for name, start, end in expected
    ]


@pytest.mark.parametrize(
    ("status", "delivered", "output", "wasted"),
    [
        pytest.param(Status.OK, None, 6, None, id="nothing is wasted on a client that stays"),
        pytest.param(Status.ABORTED, 4, 6, 2, id="made after the last delivery"),
        pytest.param(Status.ABORTED, 0, 6, 6, id="nothing was delivered"),
        pytest.param(Status.ABORTED, None, 6, None, id="not known"),
        pytest.param(Status.ABORTED, 0, None, 0, id="nothing was made"),
    ],
)
def test_wasted_tokens(
    status: Status, delivered: int | None, output: int | None, wasted: int | None
) -> None:
    seen = replace(STREAMED, status=status, delivered_tokens=delivered, output_tokens=output)
    assert complete(seen, 100).wasted_tokens == wasted


def test_gaps_between_the_tokens_of_several_sequences_are_nobodys() -> None:
    record = complete(replace(STREAMED, num_sequences=2), 100)
    assert (record.ttft_s, record.stall_s) == (0.04, 0.04)
    assert (record.tpot_s, record.itl_p50_s) == (None, None)


def test_without_speculation_there_is_no_drafted_token_and_no_zero() -> None:
    record = complete(replace(STREAMED, drafted_by_step=None, accepted_by_step=None), 100)
    assert (record.drafted_tokens, record.accepted_tokens) == (None, None)


def test_drafts_of_sequences_that_were_aborted_count_with_those_of_one_that_ended() -> None:
    """vLLM reports a sequence's drafts when it ends; the engine's steps have all of them."""
    aborted = replace(STREAMED, num_sequences=3, status=Status.ABORTED)
    steps = Ledger({}, drafted_by_step=(4, 4, 3, 2), accepted_by_step=(0, 3, 3, 1))
    record = complete(aborted, 100, steps)
    assert (record.drafted_tokens, record.accepted_tokens) == (13, 7)
    assert record.drafted_by_position == [4, 4, 3, 2]
    # Records of steps may be missing.
    few = Ledger({}, drafted_by_step=(4,), accepted_by_step=(0,))
    assert complete(aborted, 100, few).drafted_tokens == 8


def test_the_steps_say_which_emission_held_drafts() -> None:
    ledger = Ledger({}, verified=((1, 0, 0), (1, 4, 0), (5, 4, 4)))
    record = complete(STREAMED, 100, ledger)
    assert (record.emission_drafted, record.emission_accepted) == ([0, 4, 4], [0, 0, 4])
    merged = complete(STREAMED, 2, ledger)
    assert (merged.emission_drafted, merged.emission_accepted) == ([0, 8], [0, 4])
    for seen in (replace(STREAMED, num_sequences=2), AT_ONCE):
        assert complete(seen, 100, ledger).emission_drafted == []
    assert complete(STREAMED, 100, Ledger({})).emission_drafted == []


def test_a_long_series_is_merged_and_the_latency_is_not() -> None:
    times = tuple(at(40 + i) for i in range(1000))
    seen = replace(
        STREAMED, emission_ns=times, emission_tokens=[1] * 1000, output_tokens=1000,
        end_ns=at(2000),
    )  # fmt: skip
    merged, whole = complete(seen, 100), complete(seen, 2000)
    assert len(merged.emission_time_s) <= 100
    assert sum(merged.emission_tokens) == 1000
    assert (merged.emission_time_s[0], merged.emission_time_s[-1]) == (0.04, 1.039)
    assert (merged.tpot_s, merged.itl_p99_s) == (whole.tpot_s, whole.itl_p99_s)


gaps = st.lists(st.integers(0, 10**9), min_size=1, max_size=20)


@given(gaps, st.data())
def test_phases_never_overlap_nor_leave_the_request(steps: list[int], data: st.DataObject) -> None:
    times, now = [], ARRIVAL
    for step in steps:
        now += step
        times.append(now)
    seen = replace(
        STREAMED,
        scheduled_ns=data.draw(st.none() | st.integers(ARRIVAL, times[0])),
        emission_ns=times,
        emission_tokens=data.draw(
            st.lists(st.integers(0, 5), min_size=len(times), max_size=len(times))
        ),
        end_ns=times[-1],
    )
    edges = [edge for p in find_phases(seen).phases for edge in (p.start_ns, p.end_ns)]
    assert edges == sorted(edges)
    assert all(ARRIVAL <= edge <= seen.end_ns for edge in edges)
    record = complete(seen, 5)
    assert sum(record.emission_tokens) == sum(seen.emission_tokens)
    assert len(record.emission_time_s) <= 5


def test_an_observation_survives_the_pipe() -> None:
    assert decode(encode(STREAMED)) == STREAMED


def test_a_canarys_result_is_a_message_of_its_own() -> None:
    result = CanaryResult(of_request_id="r", unix_ns=1, result="match", num_tokens=3)
    assert decode(encode(result)) == result


MARKS = AnswerMarks(True, (1,), (2,), frozenset({3}))


def answered(*tokens: int, of: Observation = STREAMED, marks: AnswerMarks = MARKS) -> Observation:
    seen = replace(of, answer=pack_tokens(tokens), output_tokens=len(tokens))
    request = FinishedRequest.begin(seen)
    request.complete(100, None, marks)
    return request.seen


def test_the_first_visible_token_is_timed_by_the_emission_that_had_it() -> None:
    # Emissions of 1, 1 and 4 tokens.
    record = answered(1, 2, 10, 11, 12, 3)
    assert (record.reasoning_tokens, record.visible_tokens) == (0, 3)
    assert (record.ttft_s, record.visible_ttft_s) == pytest.approx((0.04, 0.1))
    record = answered(10, 11, 12, 13, 14, 3)
    assert record.visible_ttft_s == record.ttft_s
    attributes = answered(1, 7, 2, 10, 11, 3).to_attributes()
    assert attributes["gen_ai.usage.reasoning.output_tokens"] == 1
    assert attributes["evenkeel.visible_tokens"] == 2


def test_an_answer_at_once_has_a_first_visible_token_unless_it_reasoned() -> None:
    assert answered(10, 11, of=AT_ONCE).visible_ttft_s == answered(10, 11, of=AT_ONCE).ttft_s
    assert answered(1, 7, 2, 10, of=AT_ONCE).visible_ttft_s is None


def test_an_answer_cut_within_its_reasoning_is_empty() -> None:
    record = answered(1, 7, 7, 7, 7, 7)
    assert (record.reasoning_tokens, record.visible_tokens, record.visible_ttft_s) == (5, 0, None)


def test_repetition_is_measured_and_the_tokens_are_dropped() -> None:
    record = answered(*[10, 11] * 50)
    assert record.repeated_share == pytest.approx(1 - 2 / 97)
    assert record.answer == b""
    assert "evenkeel.answer" not in record.to_attributes()
    assert complete(STREAMED, 100).repeated_share is None


def test_of_several_answers_only_the_repetition_of_the_first_is_known() -> None:
    record = answered(*[10] * 6, of=replace(STREAMED, num_sequences=2))
    assert record.repeated_share == pytest.approx(2 / 3)
    assert (record.reasoning_tokens, record.visible_tokens, record.visible_ttft_s) == (None,) * 3


def test_of_an_answer_that_is_not_all_there_no_count_is_given() -> None:
    seen = replace(STREAMED, answer=pack_tokens([1, 7, 7]), output_tokens=6)
    request = FinishedRequest.begin(seen)
    request.complete(100, None, MARKS)
    assert (request.seen.reasoning_tokens, request.seen.visible_tokens) == (None, None)
