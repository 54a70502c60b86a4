"""Explains why a request missed the prefix cache and what the miss cost."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from evenkeel_runtime.ledger.attribution import Ledger, Phase, PrefixUse
from evenkeel_runtime.ledger.prompt_memory import (
    Earlier,
    PromptMemory,
    Tokens,
    count_moved,
    read_tokens,
)
from evenkeel_runtime.wire.cause import Cause
from evenkeel_runtime.wire.observation import Observation

logger = logging.getLogger(__name__)

# 8 MiB of token ids.
DEFAULT_MAX_TOKENS = 2 * 1024 * 1024
# Consecutive unstable prompts before the log reports one.
_UNSTABLE_IN_A_ROW = 3
_MAX_FAMILIES = 1024
_TOKENS_AROUND = 12


class Miss(StrEnum):
    """Why the part of a prompt after its cached tokens was not in the prefix cache."""

    NONE = "none"
    OFF = "off"
    EVICTED = "evicted"
    OTHER_SALT = "other_salt"
    DIVERGED = "diverged"
    NEVER_SEEN = "never_seen"


@dataclass(frozen=True, slots=True)
class PrefixExplanation:
    """Prefix-cache hits and misses of one prompt.

    Attributes:
        use: The engine's record.
        miss: Why the rest was missed; eviction takes precedence.
        missed_tokens: Tokens in whole blocks that were not found.
        cost_s: Time to compute them: own prefill time × missed ÷ computed prompt tokens.
        diverged_at: First token that differs from the nearest earlier prompt, counted from 0.
        near_id: The request of that earlier prompt.
        unstable_tokens: Static tokens after a changing piece at `diverged_at`; 0 if none.
        own_around: Its tokens around `diverged_at`.
        near_around: The earlier prompt's tokens there, if from the same tenant.
    """

    use: PrefixUse
    miss: Miss
    missed_tokens: int
    cost_s: float
    diverged_at: int | None = None
    near_id: str | None = None
    unstable_tokens: int = 0
    own_around: tuple[int, ...] = ()
    near_around: tuple[int, ...] = ()

    @property
    def recompute_s(self) -> float:
        """The part of `cost_s` that computed evicted tokens again."""
        lost = min(self.use.lost_tokens, self.missed_tokens)
        return self.cost_s * lost / self.missed_tokens if lost else 0.0

    def fill(self, record: Observation) -> None:
        """Write the explanation into the request's record."""
        use = self.use
        record.prefix_miss = self.miss.value
        record.prefix_missed_tokens = self.missed_tokens
        record.prefix_cost_s = self.cost_s
        record.prefix_lost_tokens = use.lost_tokens or None
        if self.miss is not Miss.OFF:
            record.recompute_s = self.recompute_s
        if use.evicted_ns is not None:
            record.prefix_evicted_s = (record.arrival_ns - use.evicted_ns) / 1e9
        record.prefix_evicted_by = use.evicted_by
        record.prefix_diverged_at = self.diverged_at
        record.prefix_unstable_tokens = self.unstable_tokens or None


class PrefixExplainer:
    """Explains the cache misses of prompts, in the order in which requests end.

    Args:
        max_tokens: Maximum number of prompt tokens to remember.
    """

    def __init__(self, max_tokens: int = DEFAULT_MAX_TOKENS) -> None:
        self._memory = PromptMemory(max_tokens)
        self._in_a_row: Counter[str] = Counter()
        self.num_by_miss: Counter[str] = Counter()
        self.missed_tokens_by_miss: Counter[str] = Counter()
        self.num_unstable = 0

    def explain(self, seen: Observation, ledger: Ledger) -> PrefixExplanation | None:
        """Return the explanation of a request; None if the engine never scheduled it."""
        use = ledger.prefix
        if use is None or not seen.prompt or not use.prompt_tokens:
            return None
        prompt = read_tokens(seen.prompt)
        same, other = self._memory.find_nearest(seen.cache_salt, prompt)
        found = _explain(seen, use, ledger, prompt, same, other)
        self._memory.add(seen.request_id, seen.tenant, seen.cache_salt, prompt)
        self.num_by_miss[found.miss] += 1
        self.missed_tokens_by_miss[found.miss] += found.missed_tokens
        self._watch_stability(seen.prompt_name or seen.model, found)
        return found

    def _watch_stability(self, family: str, found: PrefixExplanation) -> None:
        """Count prompts whose static part moves, and log it once per family."""
        if not found.unstable_tokens:
            if found.miss is not Miss.EVICTED:
                self._in_a_row.pop(family, None)
            return
        self.num_unstable += 1
        if len(self._in_a_row) < _MAX_FAMILIES or family in self._in_a_row:
            self._in_a_row[family] += 1
        if self._in_a_row[family] == _UNSTABLE_IN_A_ROW:
            logger.warning(
                "prompts of %r change at token %s and repeat %d tokens after it: move the changing "
                "part to the end so that the prefix cache can serve the rest",
                family,
                found.diverged_at,
                found.unstable_tokens,
            )


def _explain(
    seen: Observation,
    use: PrefixUse,
    ledger: Ledger,
    prompt: Tokens,
    same: Earlier | None,
    other: Earlier | None,
) -> PrefixExplanation:
    missed = max(0, use.cacheable_tokens - use.cached_tokens)
    computed = max(1, use.prompt_tokens - use.cached_tokens)
    prefill_s = sum(
        ledger.seconds.get(f"{Phase.TTFT}.{cause}", 0.0)
        for cause in (Cause.PREFILL_OWN, Cause.PREFILL_CACHE_MISS)
    )
    cost_s = prefill_s * missed / computed
    if not use.block_tokens:
        return PrefixExplanation(use, Miss.OFF, 0, 0.0)
    if not missed:
        return PrefixExplanation(use, Miss.NONE, 0, 0.0)
    known = use.cached_tokens + use.lost_tokens
    common = 0 if same is None else same.common_tokens
    diverged_at = None
    if same is not None and 0 < common < len(prompt) and not same.has_ended:
        diverged_at = common
    if use.lost_tokens:
        miss = Miss.EVICTED
    elif other is not None and other.common_tokens >= max(common, known) + use.block_tokens:
        miss = Miss.OTHER_SALT
    elif diverged_at is not None:
        miss = Miss.DIVERGED
    else:
        miss = Miss.NEVER_SEEN
    if miss is Miss.OTHER_SALT or diverged_at is None or same is None:
        return PrefixExplanation(use, miss, missed, cost_s)
    is_own = same.tenant == seen.tenant
    return PrefixExplanation(
        use,
        miss,
        missed,
        cost_s,
        diverged_at=diverged_at,
        near_id=same.request_id if is_own else None,
        unstable_tokens=count_moved(prompt, same.tokens, diverged_at),
        own_around=_around(prompt, diverged_at),
        near_around=_around(same.tokens, diverged_at) if is_own else (),
    )


def _around(tokens: Tokens, place: int) -> tuple[int, ...]:
    start = max(0, place - _TOKENS_AROUND)
    return tuple(int(token) for token in tokens[start : place + _TOKENS_AROUND])
