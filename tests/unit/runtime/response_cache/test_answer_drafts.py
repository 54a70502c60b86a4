"""Near answers become drafts without an embedding; those that the model gives count as verified."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from vllm.sampling_params import SamplingParams

from evenkeel import spans
from evenkeel.embedding import Vectors, load_encoder
from evenkeel_runtime.request.trace import EngineRun
from evenkeel_runtime.response_cache.answer_drafts import draft_answers, record_verified
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.memory_backend import MemoryBackend
from evenkeel_runtime.response_cache.settings_file import CachePolicy, HitMode, RoutePolicy
from evenkeel_runtime.response_cache.vllm_outputs import Gathered, make_replay
from evenkeel_runtime.wire.drafts import DraftCounts, unpack_tokens
from tests.unit.runtime.response_cache.questions import entry, question

KNOWN = {
    "How do I return an item?": (1, 2, 3),
    "How can I return my item?": (1, 2, 3),
    "How do I return a gift?": (4, 5),
    "May I return a sale item?": (6,),
    "How do I exchange an item?": (7,),
    "Do you sell hammocks?": (8,),
}


class Sketcher:
    """The real static vectors, without embeddings."""

    def __init__(self) -> None:
        self._encoder = load_encoder()

    def sketch(self, text: str) -> Vectors | None:
        return self._encoder.sketch(text)

    def encode(self, text: str) -> Vectors:
        raise AssertionError("a draft needs no embedding")


@pytest.fixture
async def cache() -> AsyncIterator[ResponseCache]:
    policy = CachePolicy(routes=(RoutePolicy(mode=HitMode.DRAFT),))
    encoder = Sketcher()
    cache = ResponseCache(policy, MemoryBackend(1 << 20), encoder, AuditLog(None))  # type: ignore[arg-type]
    for text, tokens in KNOWN.items():
        known = question(text)
        await cache.keep(known, replace(entry(known), token_ids=tokens, text=f"Answer {tokens}"))
    yield cache
    await cache.close()


def run_of(params: SamplingParams) -> EngineRun:
    return EngineRun("r", "m", params, None, False, 0, 0)


async def test_the_nearest_different_answers_are_passed_on(cache: ResponseCache) -> None:
    params = SamplingParams()
    run = run_of(params)
    drafted = await draft_answers(cache, question("Please, how do I return an item?"), run, params)
    extra = params.extra_args
    assert extra is not None
    others = list(map(unpack_tokens, extra["evenkeel_draft_others"]))
    assert unpack_tokens(extra["evenkeel_draft"]) == [1, 2, 3]
    assert len(others) == 3
    assert [1, 2, 3] not in others
    assert extra["evenkeel_draft_trust"] == 0
    assert [list(e.token_ids) for e in drafted[1:]] == others
    assert run.cache[spans.CACHE_DRAFT_TOKENS] == 3
    assert not make_replay(params).extra_args


@pytest.mark.parametrize(
    ("text", "trust"),
    [
        pytest.param("Please, how do I return an item?", 0, id="near, without a new word"),
        pytest.param("How do I return a broken item?", 1, id="near, with a new word"),
        pytest.param("Can I return it if I want to?", 2, id="farther, without a new word"),
        pytest.param("Can I return it if the postman is late?", 3, id="farther, with new words"),
    ],
)
async def test_a_draft_is_trusted_by_how_near_its_question_is_and_by_new_words(
    cache: ResponseCache, text: str, trust: int
) -> None:
    params = SamplingParams()
    await draft_answers(cache, question(text), run_of(params), params)
    assert params.extra_args is not None
    assert params.extra_args["evenkeel_draft_trust"] == trust


async def test_what_was_found_before_is_not_searched_for_again(cache: ResponseCache) -> None:
    asked = question("Please, how do I return an item?")
    nearest = cache.search(asked)
    for found in ([], nearest[2:]):
        params = SamplingParams()
        drafted = await draft_answers(cache, asked, run_of(params), params, found)
        assert [e.id for e in drafted] == [n.entry_id for n in found][: len(drafted)]
        assert bool(params.extra_args) == bool(found)


async def test_answers_deleted_since_the_search_are_no_drafts(cache: ResponseCache) -> None:
    asked = question("Please, how do I return an item?")
    nearest = cache.search(asked)
    params = SamplingParams()
    assert await cache.deletions.flush("all") == len(KNOWN)
    assert await draft_answers(cache, asked, run_of(params), params, nearest) == []
    assert not params.extra_args


@pytest.mark.parametrize("mode", [HitMode.SHADOW, HitMode.OFF])
async def test_a_route_that_must_not_answer_drafts_nothing(
    cache: ResponseCache, mode: HitMode
) -> None:
    params = SamplingParams()
    asked = question("How do I return an item now?")
    asked = replace(asked, policy=RoutePolicy(mode=mode))
    assert await draft_answers(cache, asked, run_of(params), params) == []
    assert not params.extra_args


async def test_without_a_near_question_nothing_is_drafted(cache: ResponseCache) -> None:
    params = SamplingParams()
    run = run_of(params)
    assert await draft_answers(cache, question("Quels modes de paiement ?"), run, params) == []
    assert not params.extra_args


@pytest.mark.parametrize(
    ("tokens", "accepted", "is_verified"),
    [
        pytest.param([1, 2, 3], 2, True, id="the first draft"),
        pytest.param([4, 5], 1, True, id="another draft"),
        pytest.param([1, 2, 9], 2, False, id="a part of it"),
        pytest.param([1, 2, 3], 0, False, id="the same, but nothing was verified"),
    ],
)
async def test_an_answer_is_verified_if_it_is_a_draft(
    cache: ResponseCache, tokens: list[int], accepted: int, is_verified: bool
) -> None:
    params = SamplingParams()
    run = run_of(params)
    drafted = await draft_answers(cache, question("Please, how do I return an item?"), run, params)
    drafted = [replace(drafted[0]), replace(drafted[1], token_ids=(4, 5))]
    counts = DraftCounts()
    counts.add(2, accepted)
    run.drafts_by_source["cache"] = counts
    answer = Gathered(token_ids=tokens, finish_reason="stop")
    assert record_verified(run, cache.counts, drafted, answer) == is_verified
    assert run.cache[spans.CACHE_VERIFIED_TOKENS] == cache.counts.verified_tokens == accepted


async def test_without_speculation_a_draft_stays_a_draft(cache: ResponseCache) -> None:
    params = SamplingParams()
    run = run_of(params)
    drafted = await draft_answers(cache, question("Please, how do I return an item?"), run, params)
    assert not record_verified(run, cache.counts, drafted, Gathered(token_ids=[1, 2, 3]))
    assert cache.counts.verified_tokens == 0
