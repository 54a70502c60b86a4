"""What is drafted for a step, and what is learned from it, with requests of a made-up engine."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from evenkeel_runtime.speculation.controller import GoodputController, Offer, StepFacts
from evenkeel_runtime.speculation.draft_store import DraftStore
from evenkeel_runtime.speculation.engine import Speculation
from evenkeel_runtime.speculation.sampled_watch import LOG_LIMIT
from evenkeel_runtime.speculation.state import describe_state
from evenkeel_runtime.wire.drafts import SPECULATE_KEY, TENANT_KEY
from tests.fixtures.fixed_length import FixedLength

PROMPT = [31, 32, 33, 34, 35, 36, 37, 38]
ANSWER = list(range(50, 80))
ANSWER_TOKENS = 128


@dataclass(slots=True)
class Params:
    extra_args: dict[str, Any] | None = None
    temperature: float = 0.0
    seed: int | None = None
    min_p: float = 0.0
    logit_bias: dict[int, float] | None = None
    min_tokens: int = 0


@dataclass(slots=True)
class Request:
    """A request as vLLM's scheduler holds it."""

    request_id: str
    all_token_ids: list[int] = field(default_factory=lambda: list(PROMPT))
    num_prompt_tokens: int = len(PROMPT)
    max_tokens: int = 30
    cache_salt: str | None = None
    sampling_params: Params = field(default_factory=Params)
    num_output_placeholders: int = 0


class Notes(FixedLength):
    """A fixed length that remembers what it was told."""

    def __init__(self, max_tokens: int) -> None:
        super().__init__(max_tokens)
        self.steps: list[StepFacts] = []
        self.verified: list[tuple[int, int]] = []

    def record_step(self, facts: StepFacts) -> None:
        self.steps.append(facts)

    def record_verified(self, offer: Offer, drafted: int, accepted: int) -> None:
        self.verified.append((drafted, accepted))


def speculation(length: int = 4, answer_tokens: int = ANSWER_TOKENS) -> tuple[Speculation, Notes]:
    notes = Notes(length)
    return Speculation(DraftStore(64 * 1024, seed=1), notes, 2000, answer_tokens), notes


def answer_once(engine: Speculation, request: Request, answer: Sequence[int] = ANSWER) -> None:
    """Have one request answered token by token, and end."""
    for token in answer:
        request.all_token_ids.append(token)
        engine.end_step(None, [request], goes_on=True)
    engine.record_end(request)


def first_draft(engine: Speculation, request: Request) -> list[int] | None:
    request.all_token_ids.append(ANSWER[0])
    return engine.end_step(None, [request], goes_on=True).get(request.request_id)


def test_the_second_answer_is_drafted_from_the_first() -> None:
    engine, notes = speculation()
    answer_once(engine, Request("a"))
    again = Request("b")
    assert first_draft(engine, again) == ANSWER[1:5]
    engine.record_scheduled("b", 4)
    engine.record_verified("b", (4, 4))
    again.all_token_ids += ANSWER[1:6]
    assert engine.end_step(None, [again], goes_on=True) == {"b": ANSWER[6:10]}
    engine.record_scheduled("b", 4)
    engine.record_verified("b", (4, 1))
    counts = engine.record_end(again)
    assert counts["retrieval"].drafted == [2, 2, 2, 2]
    assert counts["retrieval"].accepted == [2, 1, 1, 1]
    assert notes.verified == [(4, 4), (4, 1)]
    assert engine.totals["retrieval"] == [8, 5, 2]


def run_ahead(
    engine: Speculation, request: Request, answer: Sequence[int]
) -> tuple[int, list[list[int]]]:
    """Answer a request, each step going out before the one ahead of it is known.

    Returns:
        How many steps it took, and every draft.
    """
    drafts: dict[str, list[int]] = {}
    under_way: list[list[int]] = []
    every, steps = [], 0
    while len(made := request.all_token_ids[request.num_prompt_tokens :]) < len(answer):
        draft = drafts.pop(request.request_id, [])
        if draft:
            engine.record_scheduled(request.request_id, len(draft))
            every.append(draft)
        request.num_output_placeholders += 1 + len(draft)
        under_way.append(draft)
        if len(under_way) < 2:
            continue
        verified, steps = under_way.pop(0), steps + 1
        request.num_output_placeholders -= 1 + len(verified)
        rest = answer[len(made) :]
        accepted = next(
            (i for i, token in enumerate(verified) if rest[i : i + 1] != [token]), len(verified)
        )
        request.all_token_ids += rest[: accepted + 1]
        if verified:
            engine.record_verified(request.request_id, (len(verified), accepted))
        drafts = engine.end_step(None, [request], goes_on=True)
    return steps, every


def test_a_step_is_drafted_behind_the_one_under_way() -> None:
    engine, notes = speculation()
    answer_once(engine, Request("a"))
    steps, drafts = run_ahead(engine, Request("b"), ANSWER)
    # The first token, and the one under way when it came, are not drafted.
    assert drafts[:3] == [ANSWER[2:6], ANSWER[7:11], ANSWER[12:16]]
    assert steps == 2 + (len(ANSWER) - 2 + 4) // 5
    assert all(drafted == accepted for drafted, accepted in notes.verified)


def test_drafts_find_their_place_again_after_a_wrong_one() -> None:
    engine, notes = speculation()
    answer_once(engine, Request("a"))
    other = [*ANSWER[:9], 1999, *ANSWER[10:]]
    run_ahead(engine, Request("b"), other)
    # The draft that held the other token fails, and the one behind it; then they are right again.
    wrong = [n for n, (drafted, accepted) in enumerate(notes.verified) if accepted < drafted]
    assert len(wrong) <= 3
    assert notes.verified[0] == (4, 4)
    assert notes.verified[-1][0] == notes.verified[-1][1]


@given(
    first=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    second=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    length=st.integers(1, 6),
)
def test_any_answer_comes_out_with_steps_under_way(
    first: list[int], second: list[int], length: int
) -> None:
    engine, notes = speculation(length)
    run_ahead(engine, Request("a", max_tokens=len(first)), first)
    engine.record_end(Request("a"))
    request = Request("b", max_tokens=len(second))
    _, drafts = run_ahead(engine, request, second)
    assert request.all_token_ids[request.num_prompt_tokens :] == second
    assert all(1 <= len(draft) <= length for draft in drafts)
    assert all(accepted <= drafted for drafted, accepted in notes.verified)


def run_with_prompt(
    engine: Speculation, request: Request, answer: Sequence[int], room: int = 1000
) -> int:
    """Answer a request whose drafts begin with its prompt; return its steps."""
    drafts = engine.draft_first([request], 1, room)
    steps = 0
    while len(made := request.all_token_ids[request.num_prompt_tokens :]) < len(answer):
        draft = drafts.get(request.request_id, [])
        assert len(draft) <= room
        rest = answer[len(made) :]
        accepted = 0
        while accepted < len(draft) and rest[accepted : accepted + 1] == [draft[accepted]]:
            accepted += 1
        if draft:
            engine.record_scheduled(request.request_id, len(draft))
            engine.record_verified(request.request_id, (len(draft), accepted))
        request.all_token_ids += rest[: accepted + 1]
        facts = StepFacts(1, len(draft), accepted + 1, is_pure=steps > 0)
        drafts = engine.end_step(facts, [request], goes_on=True, room=room)
        steps += 1
    engine.record_end(request)
    return steps


def with_draft(request_id: str, draft: list[int], *others: list[int], **more: Any) -> Request:
    extra = {"evenkeel_draft": draft, "evenkeel_draft_others": list(others)}
    return Request(request_id, max_tokens=400, sampling_params=Params(extra | more))


def test_a_cached_answer_takes_one_step() -> None:
    engine, _ = speculation(ANSWER_TOKENS)
    assert run_with_prompt(engine, with_draft("a", ANSWER), ANSWER) == 1
    assert engine.totals["cache"] == [30, 30, 1]


def test_a_long_cached_answer_takes_a_step_per_part() -> None:
    engine, _ = speculation(ANSWER_TOKENS)
    answer = [i % 900 for i in range(300)]
    assert run_with_prompt(engine, with_draft("a", answer), answer) == 3
    assert run_with_prompt(engine, with_draft("b", answer), answer, room=99) == 3


def test_another_cached_answer_is_tried_after_the_first() -> None:
    engine, _ = speculation(ANSWER_TOKENS)
    request = with_draft("a", [ANSWER[0], *range(900, 920)], ANSWER)
    assert run_with_prompt(engine, request, ANSWER) == 2


@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_control_limits_cached_answers_too(ratio: float) -> None:
    engine, _ = speculation(ANSWER_TOKENS)
    engine.draft_ratio = ratio
    drafts = engine.draft_first([with_draft("a", ANSWER * 9)], 1, 1000)
    assert len(drafts.get("a", [])) == int(ANSWER_TOKENS * ratio)


def test_who_refuses_drafts_gets_none_with_its_prompt() -> None:
    engine, _ = speculation(ANSWER_TOKENS)
    request = with_draft("a", ANSWER, evenkeel_speculate=False)
    assert engine.draft_first([request], 1, 1000) == {}


few = st.lists(st.integers(0, 3), min_size=1, max_size=200)


@given(few, few, st.lists(few, max_size=3), st.sampled_from([3, 64, 1000]), st.booleans())
def test_whatever_is_drafted_the_answer_is_the_same(
    answer: list[int], draft: list[int], others: list[list[int]], room: int, always: bool
) -> None:
    controller = Notes(ANSWER_TOKENS) if always else GoodputController(15, Random(1))
    engine = Speculation(DraftStore(64 * 1024, seed=1), controller, 2000, ANSWER_TOKENS)
    for number in range(3):
        request = with_draft(f"r{number}", draft, *others)
        request.max_tokens = len(answer)
        run_with_prompt(engine, request, answer, room)
        assert request.all_token_ids[request.num_prompt_tokens :] == answer


@pytest.mark.parametrize(
    ("request_", "draft"),
    [
        pytest.param(Request("b", max_tokens=3), ANSWER[1:2], id="room for two more tokens"),
        pytest.param(Request("b", max_tokens=2), None, id="room for one, which needs no draft"),
        pytest.param(Request("b", cache_salt="x"), None, id="another cache salt"),
        pytest.param(
            Request("b", sampling_params=Params({TENANT_KEY: "x"})), None, id="another tenant"
        ),
        pytest.param(
            Request("b", sampling_params=Params({SPECULATE_KEY: False})), None, id="it refuses"
        ),
        pytest.param(
            Request("b", sampling_params=Params({SPECULATE_KEY: 0})), None, id="as vLLM reads false"
        ),
        pytest.param(
            Request("b", sampling_params=Params({"evenkeel_draft": [50, 7, 8]})),
            [7, 8],
            id="a draft of its own goes first",
        ),
        pytest.param(
            Request("b", sampling_params=Params(temperature=0.8)), ANSWER[1:5], id="sampled"
        ),
        pytest.param(
            Request("b", sampling_params=Params(temperature=0.8, seed=0)), None, id="seeded"
        ),
        pytest.param(
            Request("b", sampling_params=Params(seed=7)), ANSWER[1:5], id="greedy with a seed"
        ),
        pytest.param(
            Request("b", sampling_params=Params(temperature=0.8, min_p=0.1)), None, id="min_p"
        ),
        pytest.param(
            Request("b", sampling_params=Params(logit_bias={5: 1.0})), None, id="logit_bias"
        ),
        pytest.param(Request("b", sampling_params=Params(min_tokens=5)), None, id="min_tokens"),
    ],
)
def test_who_is_drafted_for(request_: Request, draft: list[int] | None) -> None:
    engine, _ = speculation()
    answer_once(engine, Request("a"))
    assert first_draft(engine, request_) == draft


@pytest.mark.parametrize(
    ("num_requests", "waits"),
    [(1, [1, 1, 1, 1, 1]), (5, [2, 4, 5, 5, 5]), (40, [2, 4, 8, 16, 16])],
)
def test_the_more_requests_the_more_rarely_one_without_drafts_is_asked(
    num_requests: int, waits: list[int]
) -> None:
    engine, _ = speculation()
    requests = [Request(str(number), max_tokens=500) for number in range(num_requests)]
    tried_at = []
    for step in range(60):
        for number, request in enumerate(requests):
            request.all_token_ids.append(1000 + 100 * number + step)
        engine.end_step(None, requests, goes_on=True)
        tried_at.append(engine._followed["0"].next_try_step)
    times = sorted(set(tried_at))
    assert [b - a for a, b in pairwise(times)][:5] == waits


@pytest.mark.parametrize(("ratio", "draft"), [(1.0, 4), (0.5, 2), (0.2, None), (0.0, None)])
def test_control_may_shorten_or_forbid_drafts(ratio: float, draft: int | None) -> None:
    engine, _ = speculation(answer_tokens=4)
    answer_once(engine, Request("a"))
    engine.draft_ratio = ratio
    assert first_draft(engine, Request("b")) == (ANSWER[1 : 1 + draft] if draft else None)


def test_evidence_against_sampled_tokens_ends_their_drafts_and_no_others() -> None:
    engine, _ = speculation()
    answer_once(engine, Request("a"))
    assert not engine.record_watch(100, LOG_LIMIT - 0.1)
    assert first_draft(engine, Request("b", sampling_params=Params(temperature=0.8)))
    assert engine.record_watch(200, LOG_LIMIT)
    assert not engine.record_watch(300, LOG_LIMIT + 1), "it is said once"
    assert first_draft(engine, Request("c", sampling_params=Params(temperature=0.8))) is None
    assert first_draft(engine, Request("d"))
    state = describe_state(engine, 0)
    assert (state["sampled_drafts"], state["sampled_watched"]) == (0, 300)
    assert state["sampled_evidence"] == pytest.approx((LOG_LIMIT + 1) / math.log(10))


def test_time_without_work_is_no_step() -> None:
    engine, notes = speculation()
    engine.begin_step()
    engine.end_step(StepFacts(1, 0, 1), [], goes_on=False)
    assert len(notes.steps) == 1
    # The engine sleeps here; the step after it has no beginning until it is begun.
    engine.end_step(StepFacts(1, 0, 1), [], goes_on=True)
    assert len(notes.steps) == 1
    engine.end_step(StepFacts(1, 0, 1), [], goes_on=True)
    assert len(notes.steps) == 2


def test_a_draft_of_an_unknown_request_is_passed_over() -> None:
    engine, notes = speculation()
    engine.record_scheduled("gone", 3)
    engine.record_verified("gone", (3, 3))
    assert engine.record_end(Request("gone")) == {}
    assert notes.verified == []


def test_the_state_is_plain_numbers() -> None:
    engine = Speculation(DraftStore(64 * 1024, seed=1), GoodputController(4, Random(1)), 2000, 4)
    answer_once(engine, Request("a"))
    state = describe_state(engine, 3)
    assert state["errors"] == 3
    assert state["store_answers"] == 1
    assert state["gain"] is None
    assert state["mean_drafted"] == [[1, 0.0]]


class Life(RuleBasedStateMachine):
    """Requests come, decode, are preempted, ended and aborted in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Speculation(DraftStore(1, seed=1), GoodputController(4, Random(1)), 2000, 4)
        self.live: list[Request] = []
        self.drafts: dict[str, list[int]] = {}
        self.number = 0

    @rule(prompt=st.lists(st.integers(0, 3), min_size=1, max_size=12), room=st.integers(1, 12))
    def arrive(self, prompt: list[int], room: int) -> None:
        self.number += 1
        self.live.append(Request(f"r{self.number}", list(prompt), len(prompt), room))

    @rule(data=st.data(), goes_on=st.booleans())
    def step(self, data: st.DataObject, goes_on: bool) -> None:
        decoding = [r for r in self.live if data.draw(st.booleans())]
        self.engine.begin_step()
        for request in decoding:
            draft = self.drafts.get(request.request_id, [])
            made = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=len(draft) + 1))
            if draft:
                self.engine.record_scheduled(request.request_id, len(draft))
                self.engine.record_verified(request.request_id, (len(draft), len(made) - 1))
            request.all_token_ids += made
        facts = StepFacts(len(decoding), sum(map(len, self.drafts.values())), len(decoding))
        self.drafts = self.engine.end_step(facts, decoding, goes_on)

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.live:
            request = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
            self.drafts.pop(request.request_id, None)
            self.engine.record_end(request)

    @invariant()
    def drafts_fit_their_requests(self) -> None:
        by_id = {r.request_id: r for r in self.live}
        for request_id, draft in self.drafts.items():
            request = by_id[request_id]
            answered = len(request.all_token_ids) - request.num_prompt_tokens
            assert 1 <= len(draft) <= 4
            assert answered + len(draft) < request.max_tokens

    @invariant()
    def only_live_requests_are_followed(self) -> None:
        assert set(self.engine._followed) <= {r.request_id for r in self.live}


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=30)
