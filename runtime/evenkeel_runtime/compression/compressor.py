"""Rewrite a chat request's body with a shortened history, or leave it unchanged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from evenkeel_runtime.compression.check import find_loss
from evenkeel_runtime.compression.settings_file import CompressionPolicy
from evenkeel_runtime.compression.shorten import Turn, find_old, shorten

SENT = "sent"
# A tool may be called because of a sentence that no answer in words needs.
_TOOL_KEYS = ("tools", "functions", "tool_calls", "function_call")
CountTokens = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Compressed:
    """The outcome for one request.

    Attributes:
        body: The body to send to the model server.
        verdict: `sent`; `no_gain` if too little could be removed; `failed_…` if the check found a
            loss; None if there was nothing to shorten.
        saved_tokens: Tokens removed from the history; 0 unless `sent`.
    """

    body: bytes
    verdict: str | None = None
    saved_tokens: int = 0


@dataclass(slots=True)
class CompressionCounts:
    """Requests by verdict, and the tokens saved."""

    verdicts: Counter[str] = field(default_factory=Counter)
    saved_tokens: int = 0


class Compressor:
    """Shortens requests as the policy allows; if in doubt, sends the original.

    Args:
        policy: Which requests to shorten, and by how much.
        count_tokens: Counts a text's tokens with the model's tokenizer.
    """

    def __init__(self, policy: CompressionPolicy, count_tokens: CountTokens) -> None:
        self.policy = policy
        self.counts = CompressionCounts()
        self._count_tokens = count_tokens

    def compress(self, body: bytes, route: str | None) -> Compressed:
        """Return the body to send instead of a request's JSON."""
        done = self._compress(body) if self.policy.covers(route) else Compressed(body)
        if done.verdict is not None:
            self.counts.verdicts[done.verdict] += 1
            self.counts.saved_tokens += done.saved_tokens
        return done

    def _compress(self, body: bytes) -> Compressed:
        policy = self.policy
        asked, turns = _read(body)
        if asked is None or turns is None:
            return Compressed(body)
        places = find_old(turns, policy.keep_turns)
        num_tokens = self._count(turns, places)
        if num_tokens < policy.min_tokens:
            return Compressed(body)
        shortened = shorten(turns, policy.keep_turns, policy.keep_ratio)
        loss = find_loss(turns, shortened, policy.keep_turns)
        if loss is not None:
            return Compressed(body, f"failed_{loss}")
        saved = num_tokens - self._count(shortened, places)
        if saved <= 0 or saved < num_tokens * policy.min_saved_ratio:
            return Compressed(body, "no_gain")
        messages = [
            {**message, "content": turn.content}
            for message, turn in zip(asked["messages"], shortened, strict=True)
        ]
        return Compressed(json.dumps(asked | {"messages": messages}).encode(), SENT, saved)

    def _count(self, turns: list[Turn], places: list[int]) -> int:
        return sum(self._count_tokens(turns[place].content) for place in places)


def _read(body: bytes) -> tuple[dict[str, Any] | None, list[Turn] | None]:
    """Return the request and its messages; None if they are not plain text or there are tools."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(asked, dict) or not isinstance(asked.get("messages"), list):
        return None, None
    if _has_tools(asked):
        return None, None
    turns = []
    for message in asked["messages"]:
        if not isinstance(message, dict) or _has_tools(message):
            return None, None
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or not isinstance(content, str):
            return None, None
        turns.append(Turn(role, content))
    return asked, turns


def _has_tools(value: dict[str, Any]) -> bool:
    return any(value.get(key) for key in _TOOL_KEYS)
