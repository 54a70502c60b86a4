"""Converts request and response bodies to OpenTelemetry messages, if content is recorded."""

from __future__ import annotations

import json
from typing import Any

MAX_BYTES = 256 * 1024


def input_messages(body: bytes) -> str | None:
    """Return the messages of a chat request as `gen_ai.input.messages`, or None if there are none.

    Parts that are not text (images, audio) are omitted.
    """
    asked = read_object(body) or {}
    turns = asked.get("messages")
    if turns is None and isinstance(asked.get("prompt"), str):
        turns = [{"role": "user", "content": asked["prompt"]}]
    if not isinstance(turns, list):
        return None
    messages = [
        _message(turn.get("role"), _text(turn.get("content")))
        for turn in turns
        if isinstance(turn, dict)
    ]
    return json.dumps(messages, ensure_ascii=False) if messages else None


def output_messages(body: bytes) -> str | None:
    """Return the answer, streamed or not, as `gen_ai.output.messages`, or None if there is none.

    Only the first choice is used. A truncated stream yields what was received.
    """
    if body.lstrip().startswith(b"{"):
        answer = _first_choice(read_object(body))
        message = answer.get("message")
        text = message.get("content") if isinstance(message, dict) else answer.get("text")
    else:
        text = "".join(_pieces(body))
    if not isinstance(text, str) or not text:
        return None
    return json.dumps([_message("assistant", text)], ensure_ascii=False)


def _pieces(stream: bytes) -> list[str]:
    found = []
    for line in stream.split(b"\n"):
        if line.startswith(b"data:"):
            choice = _first_choice(read_object(line[5:]))
            delta = choice.get("delta")
            piece = delta.get("content") if isinstance(delta, dict) else choice.get("text")
            if isinstance(piece, str) and choice.get("index", 0) == 0:
                found.append(piece)
    return found


def _first_choice(event: dict[str, Any] | None) -> dict[str, Any]:
    choices = (event or {}).get("choices")
    return (
        choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    )


def _message(role: Any, text: str) -> dict[str, Any]:
    return {"role": str(role), "parts": [{"type": "text", "content": text}]}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(p.get("text", "")) for p in parts if isinstance(p, dict))


def read_object(body: bytes | bytearray) -> dict[str, Any] | None:
    """Return the JSON object in a body, or None if there is none."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
