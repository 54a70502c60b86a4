"""Compares each prompt with the ones before it: where it left what the prefix cache could have had.

It holds the token ids of recent prompts in memory, in the exporter process, and nowhere else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# Prompts are found again by their beginnings of these lengths.
_LENGTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_PROMPTS_AT_A_LENGTH = 4
# A stretch of this many equal tokens behind a changed piece is a static part that moved.
MIN_MOVED_TOKENS = 32
# A changed piece, such as a date or a name, is at most this long.
_LONGEST_CHANGE = 64
_SEARCHED_TOKENS = 2048
_TOKEN_BYTES = 4

Tokens = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier prompt, and how far another one follows it.

    Attributes:
        request_id: Whose prompt it was.
        tenant: Who asked.
        common_tokens: How many leading tokens both share.
        tokens: The earlier prompt.
    """

    request_id: str
    tenant: str | None
    common_tokens: int
    tokens: Tokens

    @property
    def has_ended(self) -> bool:
        """Whether the other one goes on where this one ends: it extends it, and never left it."""
        return self.common_tokens >= len(self.tokens)


@dataclass(slots=True)
class _StoredPrompt:
    request_id: str
    tenant: str | None
    salt: str | None
    tokens: Tokens
    keys: list[int] = field(default_factory=list)


class PromptMemory:
    """The beginnings of recent prompts, bounded; the oldest are forgotten first.

    Args:
        max_tokens: Most tokens to hold, 4 bytes each.
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
            # Older ones of the same beginning are still found by their longer ones.
            del numbers[:-_PROMPTS_AT_A_LENGTH]
        while self._num_tokens > self._max_tokens and len(self._kept) > 1:
            self._forget_oldest()

    def find_nearest(
        self, salt: str | None, prompt: Tokens
    ) -> tuple[Earlier | None, Earlier | None]:
        """Return the earlier prompts that share most, of the same salt and of any other one."""
        found: set[int] = set()
        for key in reversed(_keys(prompt)):
            found.update(self._numbers_at.get(key, ()))
            if len(found) >= 2 * _PROMPTS_AT_A_LENGTH:
                break
        same: Earlier | None = None
        other: Earlier | None = None
        # Of equally near ones the latest counts: it is the one most likely to be cached still.
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
    """Return how many tokens both prompts share right behind the piece in which they differ.

    0 unless there are `MIN_MOVED_TOKENS` of them: then a static part of the prompt stands behind a
    changing one, where no prefix cache can find it.

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
    """One number for each beginning of the prompt, the short ones first."""
    lengths: Sequence[int] = [length for length in _LENGTHS if length <= len(prompt)]
    return [hash((length, prompt[:length].tobytes())) for length in lengths]
