"""Reads the server-sent events of one streamed chat answer."""

from __future__ import annotations

import json
from typing import Any

NS_PER_S = 1_000_000_000
BROKE_OFF = "the stream broke off before the answer was finished"


class StreamedAnswer:
    """Collects text, times and counts from the bytes of one stream.

    Args:
        sent_ns: Monotonic time at which the request was sent.
    """

    def __init__(self, sent_ns: int) -> None:
        self._sent_ns = sent_ns
        self._buffer = b""
        self._parts: list[str] = []
        self._first_ns: int | None = None
        self._last_ns: int | None = None
        self._error: str | None = None
        self.finish_reason: str | None = None
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None

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
        """Return (last − first text) / (output tokens − 1); None below 2 tokens."""
        if self._first_ns is None or self._last_ns is None or (self.output_tokens or 0) < 2:
            return None
        return (self._last_ns - self._first_ns) / NS_PER_S / ((self.output_tokens or 0) - 1)

    def feed(self, data: bytes, now_ns: int) -> None:
        """Take the bytes that arrived at `now_ns`; an event may be cut anywhere."""
        self._buffer += data
        if b"\n" not in data and b"\r" not in data:
            return
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._take(line[5:].strip(), now_ns)

    def problem(self) -> str | None:
        """Return why the answer cannot be used, now that the stream has ended; None if it can."""
        if self._error is not None:
            return self._error
        if self.finish_reason is None:
            return BROKE_OFF
        return None

    def _take(self, payload: bytes, now_ns: int) -> None:
        if payload == b"[DONE]":
            return
        try:
            event = json.loads(payload)
        except ValueError:
            self._error = f"the stream holds something that is not JSON: {payload[:60]!r}"
            return
        if not isinstance(event, dict):
            self._error = f"the stream holds an event that is no object: {payload[:60]!r}"
        elif "error" in event:
            self._error = f"the server broke off: {_message(event['error'])}"
        else:
            self._take_usage(event.get("usage"))
            for choice in event.get("choices") or []:
                self._take_choice(choice, now_ns)

    def _take_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self.input_tokens = usage.get("prompt_tokens")
            self.output_tokens = usage.get("completion_tokens")

    def _take_choice(self, choice: dict[str, Any], now_ns: int) -> None:
        delta = choice.get("delta") or {}
        content = delta.get("content")
        if content:
            self._parts.append(content)
        if content or delta.get("reasoning_content") or delta.get("reasoning"):
            self._last_ns = now_ns
            if self._first_ns is None:
                self._first_ns = now_ns
        self.finish_reason = choice.get("finish_reason") or self.finish_reason

    def _since_sent(self, time_ns: int | None) -> float | None:
        return None if time_ns is None else (time_ns - self._sent_ns) / NS_PER_S


def _message(error: Any) -> str:
    text = str(error.get("message", error)) if isinstance(error, dict) else str(error)
    return (text.strip().splitlines() or ["no explanation"])[0][:200]
