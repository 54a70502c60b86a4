"""The cache lookup for one question, and its span attributes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from evenkeel import spans
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.counts import CacheCounts
from evenkeel_runtime.response_cache.embedder import Vector
from evenkeel_runtime.response_cache.entry import CacheEntry
from evenkeel_runtime.response_cache.hit_class import HitClass, NearHit
from evenkeel_runtime.response_cache.near_hit_rule import find_status
from evenkeel_runtime.response_cache.neighbours import Neighbour, Sketch
from evenkeel_runtime.response_cache.question import Question
from evenkeel_runtime.response_cache.serve_control import ServeControl
from evenkeel_runtime.response_cache.settings_file import HitMode

Details = dict[str, str | int | float]


@dataclass(slots=True)
class Lookup:
    """The result of a lookup.

    Attributes:
        exact: The answer to exactly this request.
        nearest: The nearest questions by static vectors; None if not looked up, because there is an
            exact answer.
        near: The best answer to a question in other words, likewise.
        vector: The question's embedding, if computed.
        seconds: Lookup time, embedding included.
        embedding_s: Time to compare meanings, if there was anything to compare with.
        missing: Why there is no embedding, though there was something to compare with.
    """

    exact: CacheEntry | None = None
    nearest: Sequence[Neighbour] | None = None
    near: NearHit | None = None
    vector: Vector | None = None
    seconds: float = 0.0
    embedding_s: float | None = None
    missing: str | None = None


async def look_up(
    cache: ResponseCache,
    question: Question,
    sketch: Sketch,
    only_exact: bool = False,
) -> Lookup:
    """Look up the request, then its neighbours; nothing is embedded if there are none.

    Args:
        cache: The cache.
        question: The question.
        sketch: Returns the question's static vector.
        only_exact: Whether meanings are left to a later lookup.
    """
    started = perf_counter()
    found = Lookup(exact=await cache.find_exact(question))
    if found.exact is None:
        found.nearest = cache.search(question, sketch)
        if found.nearest and not only_exact:
            await _compare_meanings(cache, question, found.nearest, found)
    found.seconds = perf_counter() - started
    cache.counts.lookup_s += found.seconds
    return found


def stop_looking(looking: asyncio.Task[Lookup] | None, found: Lookup) -> Lookup:
    """Cancel a lookup beside the model; return what it has found, or `found` without one."""
    if looking is None:
        return found
    if looking.done() and not looking.cancelled():
        return looking.result()
    looking.cancel()
    return Lookup()


async def _compare_meanings(
    cache: ResponseCache, question: Question, nearest: Sequence[Neighbour], found: Lookup
) -> None:
    began = perf_counter()
    near = await cache.find_near(question, nearest)
    found.near, found.vector = near.hit, near.vector
    if near.outcome != "nothing_near":
        found.embedding_s = perf_counter() - began
        if near.vector is None:
            found.missing = f"embedding_{near.outcome}"


def describe_lookup(question: Question, found: Lookup) -> Details:
    """Return the span attributes of a lookup."""
    said: Details = {
        spans.CACHE_MODE: question.policy.mode.value,
        spans.CACHE_LOOKUP_S: found.seconds,
    }
    if found.embedding_s is not None:
        said[spans.CACHE_EMBEDDING_S] = found.embedding_s
    if found.missing is not None:
        said[spans.CACHE_REASON] = found.missing
    if found.near is not None:
        said[spans.CACHE_SIMILARITY] = found.near.similarity
        said[spans.CACHE_LEAD] = found.near.hit_class.lead
        if found.near.refused_by is not None:
            said[spans.CACHE_REASON] = found.near.refused_by
    return said


def describe_control(control: ServeControl, hit: HitClass) -> Details:
    """Return the span attributes of a hit's class: its evidence, bound, limit and status."""
    said: Details = {spans.CACHE_LIMIT: control.limit, spans.CACHE_KIND: hit.kind}
    evidence = control.find(hit)
    if evidence is not None:
        said[spans.CACHE_BOUND] = evidence.bound
        said[spans.CACHE_ROUTE] = control.route
        said[spans.CACHE_CLASS_SIMILARITY] = evidence.similarity
        said[spans.CACHE_CLASS_LEAD] = evidence.lead
        said[spans.CACHE_CLASS_SEEN] = evidence.seen
        said[spans.CACHE_CLASS_WRONG] = evidence.wrong
        said[spans.CACHE_CLASS_LABELLED] = evidence.labelled
        said[spans.CACHE_CLASS_STATUS] = find_status(control, evidence).value
    if hit.kind in control.served:
        said[spans.CACHE_THRESHOLD] = control.served[hit.kind].similarity
    return said


def find_outcome(question: Question, found: Lookup) -> str:
    """Return the outcome of a request that the model answered without the cache."""
    has_found = found.exact is not None or found.near is not None
    return "shadow" if has_found and question.policy.mode is HitMode.SHADOW else "miss"


def record_unused(counts: CacheCounts, question: Question, found: Lookup, said: Details) -> None:
    """Count a near hit that was neither served nor verified, by what the model's answer says.

    Args:
        counts: The counters.
        question: The question; on routes that only observe, no hit could have been used.
        found: The lookup.
        said: The span attributes of the comparison; without a verdict if there was none.
    """
    if found.near is not None and question.policy.mode in (HitMode.SERVE, HitMode.DRAFT):
        counts.unused[str(said.get(spans.CACHE_VERDICT, "unjudged"))] += 1


def record_verdict(
    cache: ResponseCache,
    question: Question,
    near: NearHit,
    is_same: bool,
    replayed_at: float | None = None,
) -> Details:
    """Count a verdict as evidence on near hits; return it and what it changed."""
    change = cache.record_verdict(question, near, is_same, replayed_at)
    said = describe_control(cache.control(question.policy), near.hit_class)
    said[spans.CACHE_VERDICT] = verdict_word(is_same)
    if change is not None:
        said[spans.CACHE_CHANGE] = change.describe()
    return said


def verdict_word(is_same: bool) -> str:
    """Return the verdict of a comparison with the model's own answer."""
    return "same" if is_same else "different"
