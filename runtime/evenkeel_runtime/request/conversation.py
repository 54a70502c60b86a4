"""Digests of a request's messages, by which a conversation is recognised without its text."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

# Longer bodies, and conversations of more messages, are not followed.
MAX_BYTES = 512 * 1024
MAX_MESSAGES = 4096
DIGEST_BYTES = 8
# The lowest bit of a digest's first byte is set for what the model answered.
ANSWER_BIT = 1

_ANSWERING = ("assistant", "model")
# A client marks other parts of a conversation as cacheable at each turn.
_CHANGING = ("cache_control",)


class _Body(msgspec.Struct):
    """What a chat request says: OpenAI's and Anthropic's messages, or OpenAI's responses."""

    messages: list[Any] | None = None
    input: Any = None
    system: Any = None
    instructions: Any = None


_BODY = msgspec.json.Decoder(_Body)
_ENCODE = msgspec.json.Encoder(order="deterministic").encode


def digest(body: bytes | bytearray) -> bytes:
    """Return one digest of 8 bytes per message, instructions first.

    Two requests have the same digest for a message that says the same: its role, its text and its
    other parts count, not how it is written down. Empty if the body has no list of messages, is too
    long or nested too deeply, or is not JSON.
    """
    if len(body) >= MAX_BYTES:
        return b""
    try:
        return _digest_all(_BODY.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return b""


def _digest_all(asked: _Body) -> bytes:
    turns = asked.messages if asked.messages is not None else asked.input
    if not isinstance(turns, list) or not 0 < len(turns) <= MAX_MESSAGES:
        return b""
    first = asked.system or asked.instructions
    if first:
        turns = [{"role": "system", "content": first}, *turns]
    return b"".join(map(_digest, turns))


def _digest(turn: Any) -> bytes:
    role = turn.get("role") if isinstance(turn, dict) else None
    said = _plain(turn)
    value = bytearray(blake2b(_ENCODE(said), digest_size=DIGEST_BYTES).digest())
    is_answer = role in _ANSWERING or (role is None and _is_call(turn))
    value[0] = value[0] | ANSWER_BIT if is_answer else value[0] & ~ANSWER_BIT
    return bytes(value)


def _is_call(turn: Any) -> bool:
    """Tell whether an item of a responses request is the model's: a call or its reasoning."""
    kind = turn.get("type") if isinstance(turn, dict) else None
    return isinstance(kind, str) and (kind.endswith("_call") or kind == "reasoning")


def _plain(value: Any) -> Any:
    """Return what a message says: a text that is a list of one part is that text."""
    if isinstance(value, dict):
        kept = {
            key: _plain(each)
            for key, each in value.items()
            if key not in _CHANGING and each is not None
        }
        if kept.get("type") in ("text", "input_text", "output_text") and "text" in kept:
            return kept["text"]
        return kept
    if isinstance(value, list):
        parts = [_plain(each) for each in value]
        return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts
    return value
