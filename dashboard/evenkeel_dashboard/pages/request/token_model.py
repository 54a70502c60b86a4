"""Reads one request's token timeline: emissions, drafts, stalls, and cache use."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from evenkeel import spans
from evenkeel_dashboard.draw import formats

Row = Mapping[str, Any]
Attributes = Mapping[str, str]

STALL_FACTOR = 4.0
"""A gap is a stall if it is this many times the request's median gap."""

MAX_POINTS = 2_000

_LEAST_GAPS = 3
_LISTED = 5
_ANSWERED = ("exact", "semantic")


@dataclass(frozen=True, slots=True)
class Emission:
    """One emission of the request.

    Attributes:
        time_s: Seconds since arrival.
        num_tokens: Tokens that arrived together.
        gap_s: Seconds since the previous emission; None for the first.
        is_stall: Whether that gap is far above the request's own median.
        drafted: Draft tokens tried in the steps behind it; None if unknown.
        accepted: Those that the model accepted; None likewise.
    """

    time_s: float
    num_tokens: int
    gap_s: float | None
    is_stall: bool
    drafted: int | None = None
    accepted: int | None = None

    @property
    def from_drafts(self) -> int:
        """Drafted tokens in this emission; a stop may have cut some accepted ones."""
        return min(max(0, self.accepted or 0), self.num_tokens)

    @property
    def rejected(self) -> int:
        """Draft tokens that the model rejected."""
        return max(0, (self.drafted or 0) - (self.accepted or 0))


@dataclass(frozen=True, slots=True)
class CacheUse:
    """What one cache did for the request, and when.

    Attributes:
        name: "prefix cache" or "response cache".
        words: What it did in words, with units.
        start_s: Start in seconds since arrival; `end_s` is the end.
        share: Share of the possible benefit that it provided, 0-1.
    """

    name: str
    words: str
    start_s: float
    end_s: float
    share: float


def own_attributes(row: Row, found: Sequence[Row]) -> Attributes:
    """Return the attributes of the request's own span in its trace; {} if the span is missing."""
    own = (span["attributes"] for span in found if span["span_id"] == row["span_id"])
    return next(own, {})


def tokens(row: Row, attributes: Attributes | None = None) -> list[Emission]:
    """Return the emissions with the gap before each; [] if nothing was emitted.

    `attributes` are those of the request's span, which record the drafts per emission.
    """
    times_s, counts = row["emission_time_s"], row["emission_tokens"]
    if not len(times_s):
        return []
    gaps_s = [later - earlier for earlier, later in pairwise(times_s)]
    usual_s = median(gaps_s) if gaps_s else 0.0
    drafted = _numbers(attributes, spans.EMISSION_DRAFTED, len(counts))
    accepted = _numbers(attributes, spans.EMISSION_ACCEPTED, len(counts))
    series = []
    for i, time_s in enumerate(times_s):
        gap_s = gaps_s[i - 1] if i else None
        is_stall = gap_s is not None and can_stall(len(counts)) and gap_s > STALL_FACTOR * usual_s
        series.append(Emission(time_s, int(counts[i]), gap_s, is_stall, drafted[i], accepted[i]))
    return series


def can_stall(num_emissions: int) -> bool:
    """Whether there are enough gaps for one to stand out."""
    return num_emissions > _LEAST_GAPS


def _numbers(attributes: Attributes | None, name: str, length: int) -> list[int | None]:
    """Return a span's list of numbers; all None if missing or not one number per emission."""
    try:
        found = json.loads((attributes or {}).get(name) or "[]")
    except (ValueError, RecursionError):
        found = []
    if isinstance(found, list) and len(found) == length:
        return [number if isinstance(number, int) else None for number in found]
    return [None] * length


def thinned(series: Sequence[Emission], limit: int = MAX_POINTS) -> list[Emission]:
    """Return up to `limit` emissions: of each run of neighbours, the one after the longest gap."""
    if len(series) <= limit:
        return list(series)
    size = -(-len(series) // limit)
    runs = (series[i : i + size] for i in range(0, len(series), size))
    return [max(run, key=lambda token: token.gap_s or 0.0) for run in runs]


def knows_drafts(series: Sequence[Emission]) -> bool:
    """Whether the span records which emissions held drafts."""
    return any(token.drafted is not None for token in series)


def untold_s(row: Row) -> float:
    """Return the seconds before the first token that its sender counts in no phase.

    vLLM's own traces leave out what its API server does before the engine's queue and after the
    engine's token.
    """
    ttft_s, queue_s, prefill_s = row.get("ttft_s"), row["queue_s"], row["prefill_s"]
    if ttft_s is None or prefill_s is None:
        return 0.0
    return max(0.0, float(ttft_s) - float(queue_s or 0.0) - float(prefill_s))


def cache_uses(row: Row, attributes: Attributes) -> list[CacheUse]:
    """Return what the prefix and the response cache did, leaving out a cache without data."""
    found = []
    queue_s, prefill_s = row["queue_s"], row["prefill_s"]
    cached, asked = row["cached_tokens"], row["input_tokens"]
    if None not in (queue_s, prefill_s, cached) and asked:
        words = (
            f"{formats.count(cached)} of {formats.count(asked)} prompt tokens "
            f"({formats.percent(cached / asked)}) from the prefix cache"
        )
        share = min(1.0, cached / asked)
        start_s = untold_s(row) + queue_s
        found.append(CacheUse("prefix cache", words, start_s, start_s + prefill_s, share))
    if row["response_cache"]:
        found.append(_response_cache(row, attributes))
    return found


def _response_cache(row: Row, attributes: Attributes) -> CacheUse:
    """Return what the response cache did; its lookup starts at arrival, before anything else."""
    lookup_s = number(attributes, spans.CACHE_LOOKUP_S)
    saved_tokens = number(attributes, spans.CACHE_SAVED_TOKENS)
    saved_s = number(attributes, spans.CACHE_SAVED_S)
    has_answered = row["response_cache"] in _ANSWERED
    said = f"{row['response_cache']} {'hit' if has_answered else ''}".strip()
    words = f"response cache: {said}"
    if lookup_s is not None:
        words += f", looked up in {formats.seconds(lookup_s)}"
    if has_answered and saved_tokens is not None:
        words += f", {formats.count(saved_tokens)} output tokens saved"
    if has_answered and saved_s is not None:
        words += f" that had taken {formats.seconds(saved_s)}"
    return CacheUse("response cache", words, 0.0, lookup_s or 0.0, float(has_answered))


def number(attributes: Attributes, name: str) -> float | None:
    """Return an attribute as a number; None if it is absent, not a number, or negative."""
    try:
        value = float(attributes[name])
    except (KeyError, ValueError):
        return None
    return value if math.isfinite(value) and value >= 0 else None


def summary(row: Row, series: Sequence[Emission]) -> str:
    """Return a summary of the emissions in words: emissions, tokens, drafts and stalls."""
    if not series:
        return "no emissions recorded: the answer was not streamed, or had no tokens"
    num_tokens = sum(token.num_tokens for token in series)
    parts = [f"{_counted(num_tokens, 'token')} in {_counted(len(series), 'emission')}"]
    drafted, accepted = row["drafted_tokens"], row["accepted_tokens"]
    if drafted:
        where = "" if knows_drafts(series) else "; which emissions held them is not recorded"
        parts.append(
            f"{formats.count(accepted)} of {formats.count(drafted)} drafted tokens accepted{where}"
        )
    stalls = [token for token in series if token.is_stall]
    if can_stall(len(series)):
        gap = f"{STALL_FACTOR:.0f}× the median gap"
        parts.append(
            f"{_counted(len(stalls), 'stall')} (more than {gap})"
            if stalls
            else f"no gap above {gap}"
        )
    return ", ".join(parts)


def _counted(number: int, noun: str) -> str:
    return f"{formats.count(number)} {noun}{'' if number == 1 else 's'}"


def in_words(row: Row, series: Sequence[Emission], caches: Sequence[CacheUse]) -> str:
    """Return the token timeline in words, for screen readers."""
    said = [f"Token timeline: {summary(row, series)}"]
    if row["ttft_s"] is not None:
        said.append(f"first token {formats.seconds(row['ttft_s'])} after arrival")
    stalls = sorted((t for t in series if t.is_stall), key=lambda t: -(t.gap_s or 0.0))
    for token in stalls[:_LISTED]:
        gap_s = token.gap_s or 0.0
        after = formats.seconds(token.time_s - gap_s)
        said.append(f"stall of {formats.seconds(gap_s)}, {after} after arrival")
    return "; ".join([*said, *(use.words for use in caches)])
