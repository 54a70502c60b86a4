"""Names what went on while a session's prefix was evicted from the cache."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from evenkeel_dashboard.sessions.tree import WorkNode
from evenkeel_dashboard.sessions.work import Work, WorkKind

# Blocks that a prompt may lack although all of its prefix is cached: its last one or two.
MAX_UNCACHED_TOKENS = 256
# Overlapping work of which the longest is looked for.
_MAX_LOOKED_AT = 1000


class During(StrEnum):
    """What the session did when its prefix was evicted."""

    TOOL = "tool"
    MODEL = "model"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Eviction:
    """A prompt whose prefix the session had in the cache, and lost.

    Attributes:
        work: The request that computed it again.
        seconds: What that took; None if unknown.
        during: What the session did at the time.
        tool: The tool that ran; None unless `during` is TOOL.
        is_inferred: Whether it follows from the cached tokens, and not from the engine's record.
    """

    work: Work
    seconds: float | None
    during: During
    tool: str | None = None
    is_inferred: bool = False


def find_evictions(tree: Sequence[WorkNode]) -> list[Eviction]:
    """Return the evictions of a session's prefixes, by the arrival that noticed them.

    The engine's record counts where there is one. Otherwise a prompt that is at least as long as
    the one before it, of the same model and agent, should have all of that one's tokens in the
    cache.
    """
    ordered = sorted(tree, key=lambda node: node.work.start_ns)
    tools = [node.work for node in ordered if node.work.kind is WorkKind.TOOL]
    requests = [node for node in ordered if node.work.kind is WorkKind.REQUEST]
    previous: dict[tuple[int, str], Work] = {}
    tool_index = _Running(tools)
    request_index = _Running([node.work for node in requests])
    found = []
    for node in requests:
        work, agent = node.work, node.agent()
        thread = (0 if agent is None else id(agent), work.name)
        before = previous.get(thread)
        previous[thread] = work
        lost_s = work.recompute_s
        is_inferred = lost_s is None and before is not None and _has_lost(work, before)
        if not (lost_s or is_inferred):
            continue
        if is_inferred and before is not None:
            lost_s = _recompute_s(work, before)
        from_ns = work.start_ns if before is None else before.end_ns
        at_ns = work.start_ns
        if work.evicted_s is not None:
            from_ns = at_ns = work.start_ns - round(work.evicted_s * 1e9)
        tool = tool_index.longest(min(from_ns, at_ns), at_ns)
        if tool is not None:
            during = During.TOOL
        elif request_index.longest(min(from_ns, at_ns), at_ns, but=work) is not None:
            during = During.MODEL
        else:
            during = During.CLIENT
        found.append(
            Eviction(work, lost_s, during, None if tool is None else tool.name, is_inferred)
        )
    return found


def _has_lost(work: Work, before: Work) -> bool:
    if None in (work.cached_tokens, work.input_tokens, before.input_tokens):
        return False
    assert work.cached_tokens is not None
    assert work.input_tokens is not None
    assert before.input_tokens is not None
    is_longer = work.input_tokens >= before.input_tokens
    return is_longer and work.cached_tokens < before.input_tokens - MAX_UNCACHED_TOKENS


def _recompute_s(work: Work, before: Work) -> float | None:
    if work.prefill_s is None or work.input_tokens is None or before.input_tokens is None:
        return None
    cached = work.cached_tokens or 0
    computed = max(1, work.input_tokens - cached)
    return work.prefill_s * (before.input_tokens - cached) / computed


class _Running:
    """Finds the work that fills most of a window."""

    def __init__(self, works: Sequence[Work]) -> None:
        """Take work in the order of its starts."""
        self._works = works
        self._last_ends = list(accumulate((work.end_ns for work in works), max))

    def longest(self, from_ns: int, to_ns: int, but: Work | None = None) -> Work | None:
        """Return that work; of equals, and at a moment (`from_ns == to_ns`), what ended last.

        Of tools that run at once, that is the one that the session waited for.
        """
        best, most = None, (0, 0)
        place = bisect_right(self._works, to_ns, key=lambda work: work.start_ns) - 1
        for at in range(place, max(-1, place - _MAX_LOOKED_AT), -1):
            if self._last_ends[at] < from_ns:
                break
            work = self._works[at]
            overlap_ns = min(work.end_ns, to_ns) - max(work.start_ns, from_ns)
            is_running = overlap_ns > 0 or (from_ns == to_ns and overlap_ns == 0)
            if is_running and work is not but and (overlap_ns, work.end_ns) > most:
                best, most = work, (overlap_ns, work.end_ns)
        return best
