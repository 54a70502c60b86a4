"""Counts the tool calls of an answer that its parser could not read."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

# A call in JSON without any mark around it, which Llama writes, and others by mistake.
_BARE_CALL = re.compile(
    r'\s*\{\s*("type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"[^"]*"\s*,'
    r'\s*"(arguments|parameters)"\s*:'
)
# A longer answer keeps its start: its calls are counted as far as they are in it.
MAX_CHARS = 1 << 18


def count_failed(text: str, marks: Sequence[str], arguments: Iterable[str], is_forced: bool) -> int:
    """Return how many calls of an answer did not parse, or have arguments that are not JSON.

    Args:
        text: The answer as the model wrote it, without its reasoning.
        marks: What begins a call, or several, in this model's format.
        arguments: Those of each call that was parsed.
        is_forced: Whether the request demanded a call.
    """
    parsed = list(arguments)
    num_begun = max((text.count(mark) for mark in marks), default=0)
    if is_forced or _BARE_CALL.match(text):
        num_begun = max(num_begun, 1)
    num_broken = sum(not _is_json(each) for each in parsed)
    return max(0, num_begun - len(parsed)) + num_broken


def _is_json(arguments: str) -> bool:
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True


class StreamedCalls:
    """Collects an answer and its parsed calls while it is streamed."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._num_chars = 0
        self._arguments: defaultdict[int, list[str]] = defaultdict(list)

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._text)

    @property
    def arguments(self) -> list[str]:
        """The arguments of each call so far."""
        return ["".join(parts) for parts in self._arguments.values()]

    def add_text(self, text: str) -> None:
        """Add what the model wrote."""
        if self._num_chars < MAX_CHARS:
            self._text.append(text)
            self._num_chars += len(text)

    def add_call(self, index: int, arguments: str) -> None:
        """Add a part of a call's arguments; empty for its name."""
        if self._num_chars < MAX_CHARS:
            self._arguments[index].append(arguments)
            self._num_chars += len(arguments)
