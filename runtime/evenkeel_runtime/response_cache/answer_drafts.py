"""Near answers as drafts: which ones, how far to trust them, and whether the model gave one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evenkeel import spans
from evenkeel_runtime.request.trace import EngineRun
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.counts import CacheCounts
from evenkeel_runtime.response_cache.entry import CacheEntry
from evenkeel_runtime.response_cache.neighbours import Neighbour
from evenkeel_runtime.response_cache.question import Question
from evenkeel_runtime.response_cache.settings_file import HitMode
from evenkeel_runtime.response_cache.vllm_outputs import Gathered, hand_drafts
from evenkeel_runtime.text.guards import count_stems

# The speculation hook's name for this source of drafts (wire/drafts.py counts by source).
_SOURCE = "cache"
# Below this static cosine, and if the nearest question lacks a word of weight, its answer is more
# often a different one. The speculation hook keeps acceptance rates for each of the four cases.
_HIGH_SIMILARITY = 0.6


async def draft_answers(
    cache: ResponseCache,
    question: Question,
    run: EngineRun,
    params: Any,
    nearest: Sequence[Neighbour] | None = None,
) -> list[CacheEntry]:
    """Pass near answers to the speculation hook as drafts of the whole answer; return them.

    No request waits for an embedding here: only serving and the evidence need one.

    Args:
        cache: The cache.
        question: The question.
        run: The run that gets the drafts.
        params: Its sampling parameters.
        nearest: The nearest by static vectors, as `ResponseCache.search` returns them; None if they
            are still to be looked for.
    """
    if question.policy.mode not in (HitMode.SERVE, HitMode.DRAFT):
        return []
    if nearest is None:
        nearest = cache.search(question)
    found = await cache.find_drafts(nearest)
    if not found:
        return []
    entries = [entry for _, entry in found]
    nearest_one, _ = found[0]
    known = cache.index.find_known(nearest_one.entry_id).stems
    has_new_word = not count_stems(question.text).issubset(known)
    trust = 2 * (nearest_one.similarity < _HIGH_SIMILARITY) + has_new_word
    hand_drafts(params, [entry.token_ids for entry in entries], trust)
    run.cache[spans.CACHE_DRAFT_TOKENS] = len(entries[0].token_ids)
    return entries


def record_verified(
    run: EngineRun, counts: CacheCounts, drafted: Sequence[CacheEntry], gathered: Gathered
) -> bool:
    """Count accepted tokens of the drafts; return whether the answer is one of them, verified."""
    drafts = run.drafts_by_source.get(_SOURCE)
    if not drafted or drafts is None:
        return False
    run.cache[spans.CACHE_VERIFIED_TOKENS] = drafts.accepted_tokens
    counts.verified_tokens += drafts.accepted_tokens
    answer = tuple(gathered.token_ids)
    return drafts.accepted_tokens > 0 and any(entry.token_ids == answer for entry in drafted)
