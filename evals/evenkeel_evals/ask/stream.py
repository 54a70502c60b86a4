"""Parses the server-sent events of one streamed chat answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

NS_PER_S = 1_000_000_000
BROKE_OFF = "the stream ended before the answer was complete"
NOT_A_STREAM = "the server did not stream: it sent {start!r} instead of server-sent events"
# The fields of an event, and its comments. Anything else is no stream of events.
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
# CRLF ends two lines, the second one empty; empty lines are ignored.
_LINE_END = re.compile(rb"[\r\n]")


class StreamedAnswer:
    """Collects text, times and counts from the bytes of one stream.

    Args:
        sent_ns: Monotonic time at which the request was sent, in nanoseconds.
    """

    def __init__(self, sent_ns: int) -> None:
        self._sent_ns = sent_ns
        self._buffer = b""
        self._fed_ns = sent_ns
        self._parts: list[str] = []
        self._num_pieces = 0
        self._num_events = 0
        self._first_ns: int | None = None
        self._last_ns: int | None = None
        self._error: str | None = None
        self._stray: bytes | None = None
        self.finish_reason: str | None = None
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.reasoning_tokens: int | None = None

    @property
    def text(self) -> str:
        """Return the answer so far."""
        return "".join(self._parts)

    @property
    def ttft_s(self) -> float | None:
        """Return first text − send in seconds; None without text."""
        return self._since_sent(self._first_ns)

    @property
    def e2e_s(self) -> float | None:
        """Return last text − send in seconds; None without text."""
        return self._since_sent(self._last_ns)

    @property
    def tpot_s(self) -> float | None:
        """Return the time per output token in seconds; None below 2 tokens."""
        return time_per_output_token_s(self.ttft_s, self.e2e_s, self.output_tokens)

    @property
    def num_pieces(self) -> int:
        """Return the number of text chunks: roughly the tokens if the server reports none."""
        return self._num_pieces

    def feed(self, data: bytes, now_ns: int) -> None:
        """Process the bytes that arrived at `now_ns`; an event may be split anywhere."""
        self._buffer += data
        self._fed_ns = now_ns
        if b"\n" not in data and b"\r" not in data:
            return
        *lines, self._buffer = _LINE_END.split(self._buffer)
        for line in lines:
            self._take_line(line, now_ns)

    def end(self) -> None:
        """Process the last line of the finished stream if only its line end is missing."""
        line, self._buffer = self._buffer, b""
        if not line.startswith(b"data:") or _is_json(line[5:]):
            self._take_line(line, self._fed_ns)

    def problem(self) -> str | None:
        """Return why the finished stream's answer is unusable; None if it is usable."""
        if self._error is not None:
            return self._error
        if self.finish_reason is not None:
            return None
        if self._stray is not None and not self._num_events:
            return NOT_A_STREAM.format(start=self._stray[:60])
        return BROKE_OFF

    def _take_line(self, line: bytes, now_ns: int) -> None:
        if line.startswith(b"data:"):
            self._num_events += 1
            self._take(line[5:].strip(), now_ns)
        elif self._stray is None and line.strip() and not line.startswith(_FIELDS):
            self._stray = line.strip()

    def _take(self, payload: bytes, now_ns: int) -> None:
        if payload == b"[DONE]":
            return
        try:
            event = json.loads(payload)
        except (ValueError, RecursionError):
            self._error = f"the stream contains something that is not JSON: {payload[:60]!r}"
            return
        if not isinstance(event, dict):
            self._error = f"the stream contains an event that is not an object: {payload[:60]!r}"
        elif event.get("error") is not None:
            self._error = f"the server stopped: {_message(event['error'])}"
        else:
            self._take_usage(event.get("usage"))
            choices = event.get("choices") or []
            if isinstance(choices, list) and all(isinstance(choice, dict) for choice in choices):
                for choice in choices:
                    self._take_choice(choice, now_ns)
            else:
                self._error = f"the stream contains invalid choices: {str(choices)[:60]!r}"

    def _take_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self.input_tokens = _count(usage.get("prompt_tokens"))
            self.output_tokens = _count(usage.get("completion_tokens"))
            self.cached_tokens = count_cached(usage)
            self.reasoning_tokens = count_reasoning(usage)

    def _take_choice(self, choice: dict[str, Any], now_ns: int) -> None:
        delta = choice.get("delta") or {}
        if not isinstance(delta, dict):
            self._error = f"the stream contains a delta that is not an object: {str(delta)[:60]!r}"
            return
        content = _text(delta.get("content"))
        if content is None:
            self._error = f"the answer's content is not text: {str(delta['content'])[:60]!r}"
            return
        if content:
            self._parts.append(content)
        if content or delta.get("reasoning_content") or delta.get("reasoning"):
            self._last_ns = now_ns
            self._num_pieces += 1
            if self._first_ns is None:
                self._first_ns = now_ns
        finish_reason = choice.get("finish_reason")
        if finish_reason:
            self.finish_reason = str(finish_reason)[:40]

    def _since_sent(self, time_ns: int | None) -> float | None:
        return None if time_ns is None else (time_ns - self._sent_ns) / NS_PER_S


def time_per_output_token_s(
    first_s: float | None, last_s: float | None, num_tokens: int | None
) -> float | None:
    """Return (last − first text) / (tokens − 1); None below 2 tokens."""
    if first_s is None or last_s is None or num_tokens is None or num_tokens < 2:
        return None
    return (last_s - first_s) / (num_tokens - 1)


def count_cached(usage: Mapping[str, Any]) -> int | None:
    """Return the cached input tokens of OpenAI's `usage`; None if it does not say."""
    return _count_detail(usage, ("prompt_tokens_details", "input_tokens_details"), "cached_tokens")


def count_reasoning(usage: Mapping[str, Any]) -> int | None:
    """Return the output tokens that were reasoning; None if `usage` does not say."""
    names = ("completion_tokens_details", "output_tokens_details")
    return _count_detail(usage, names, "reasoning_tokens")


def _count_detail(usage: Mapping[str, Any], names: Sequence[str], key: str) -> int | None:
    for name in names:
        details = usage.get(name)
        if isinstance(details, dict):
            return _count(details.get(key))
    return None


def _is_json(payload: bytes) -> bool:
    try:
        json.loads(payload)
    except (ValueError, RecursionError):
        return False
    return True


def _text(content: Any) -> str | None:
    """Return the text of a content, which may be a list of parts; None if it has no text."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return None
    texts = [
        part.get("text", "") if isinstance(part, dict) and part.get("type") == "text" else part
        for part in content
    ]
    return "".join(texts) if all(isinstance(text, str) for text in texts) else None


def _count(value: Any) -> int | None:
    """Return a token count; None if the value is not one."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if is_count else None


def _message(error: Any) -> str:
    text = str(error.get("message", error)) if isinstance(error, dict) else str(error)
    return (text.strip().splitlines() or ["no explanation"])[0][:200]
