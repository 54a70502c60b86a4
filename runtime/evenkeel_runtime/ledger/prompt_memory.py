"""Compares each prompt with earlier ones to find where it left a cacheable prefix.

Token ids of recent prompts are held only in memory, in the exporter process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# Prompts are indexed by their prefixes of these lengths.
_LENGTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_PROMPTS_AT_A_LENGTH = 4
# This many equal tokens after a changed piece count as a static part that moved.
MIN_MOVED_TOKENS = 32
# A changed piece, such as a date or a name, is at most this long.
_LONGEST_CHANGE = 64
_SEARCHED_TOKENS = 2048
_TOKEN_BYTES = 4

Tokens = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier prompt, and the length of its common prefix with another.

    Attributes:
        request_id: The request of the prompt.
        tenant: Its tenant.
        common_tokens: Number of leading tokens that both share.
        tokens: The earlier prompt.
    """

    request_id: str
    tenant: str | None
    common_tokens: int
    tokens: Tokens

    @property
    def has_ended(self) -> bool:
        """Return whether the other prompt extends this one without diverging from it."""
        return self.common_tokens >= len(self.tokens)


@dataclass(slots=True)
class _StoredPrompt:
    request_id: str
    tenant: str | None
    salt: str | None
    tokens: Tokens
    keys: list[int] = field(default_factory=list)


class PromptMemory:
    """Bounded index of the prefixes of recent prompts; evicts the oldest first.

    Args:
        max_tokens: Maximum number of tokens to hold, 4 bytes each.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._next = 0
        self._kept: OrderedDict[int, _StoredPrompt] = OrderedDict()
        self._numbers_at: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, request_id: str, tenant: str | None, salt: str | None, prompt: Tokens) -> None:
        """Remember a prompt."""
        kept = _StoredPrompt(request_id, tenant, salt, prompt, _keys(prompt))
        number, self._next = self._next, self._next + 1
        self._kept[number] = kept
        self._num_tokens += len(prompt)
        for key in kept.keys:
            numbers = self._numbers_at.setdefault(key, [])
            numbers.append(number)
            # Older prompts with the same prefix are still found by their longer prefixes.
            del numbers[:-_PROMPTS_AT_A_LENGTH]
        while self._num_tokens > self._max_tokens and len(self._kept) > 1:
            self._forget_oldest()

    def find_nearest(
        self, salt: str | None, prompt: Tokens
    ) -> tuple[Earlier | None, Earlier | None]:
        """Return the earlier prompts with the longest common prefix: same salt, and other salts."""
        found: set[int] = set()
        for key in reversed(_keys(prompt)):
            found.update(self._numbers_at.get(key, ()))
            if len(found) >= 2 * _PROMPTS_AT_A_LENGTH:
                break
        same: Earlier | None = None
        other: Earlier | None = None
        # Ties go to the latest prompt, which is the most likely to be cached still.
        for number in sorted(found, reverse=True):
            kept = self._kept[number]
            common = count_common(prompt, kept.tokens)
            earlier = Earlier(kept.request_id, kept.tenant, common, kept.tokens)
            if kept.salt == salt:
                same = earlier if same is None or common > same.common_tokens else same
            else:
                other = earlier if other is None or common > other.common_tokens else other
        return same, other

    def _forget_oldest(self) -> None:
        number, kept = self._kept.popitem(last=False)
        self._num_tokens -= len(kept.tokens)
        for key in kept.keys:
            numbers = self._numbers_at.get(key)
            if numbers is not None and number in numbers:
                numbers.remove(number)
                if not numbers:
                    del self._numbers_at[key]


def read_tokens(prompt: bytes) -> Tokens:
    """Return the token ids that `pack_tokens` packed."""
    return np.frombuffer(prompt, np.uint32)


def count_common(one: Tokens, other: Tokens) -> int:
    """Return how many leading tokens two prompts share."""
    size = min(len(one), len(other))
    differs = one[:size] != other[:size]
    return int(np.argmax(differs)) if differs.any() else size


def count_moved(prompt: Tokens, earlier: Tokens, common_tokens: int) -> int:
    """Return how many tokens both prompts share right after the piece in which they differ.

    0 if fewer than `MIN_MOVED_TOKENS`. Otherwise a static part of the prompt follows a changing
    one, where no prefix cache can find it.

    Args:
        prompt: One prompt.
        earlier: Another.
        common_tokens: How many leading tokens they share.
    """
    rest = np.ascontiguousarray(earlier[common_tokens : common_tokens + _SEARCHED_TOKENS])
    haystack = rest.tobytes()
    for skipped in range(_LONGEST_CHANGE + 1):
        start = common_tokens + skipped
        piece = prompt[start : start + MIN_MOVED_TOKENS]
        if len(piece) < MIN_MOVED_TOKENS:
            return 0
        at = haystack.find(np.ascontiguousarray(piece).tobytes())
        if at >= 0 and at % _TOKEN_BYTES == 0 and at // _TOKEN_BYTES <= _LONGEST_CHANGE:
            return count_common(prompt[start:], rest[at // _TOKEN_BYTES :])
    return 0


def _keys(prompt: Tokens) -> list[int]:
    """Return one key per prefix of the prompt, shortest first."""
    lengths: Sequence[int] = [length for length in _LENGTHS if length <= len(prompt)]
    return [hash((length, prompt[:length].tobytes())) for length in lengths]
