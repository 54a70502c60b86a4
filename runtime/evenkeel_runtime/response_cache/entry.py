"""One cached answer and its binary encoding."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from evenkeel.embedding import DIMENSIONS


class CorruptEntryError(Exception):
    """Bytes from the backend are not a valid entry."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """An answer of the model, with what decides to whom and for how long it may be served.

    Attributes:
        id: Hash of everything that identifies an identical request.
        scope: The same hash without the question; questions are compared only within a scope.
        tenant: Tenant of the request.
        subjects: Hashes of the end users whose deletion removes it.
        question: The last message.
        text: The answer.
        token_ids: The answer's tokens.
        finish_reason: Why it ended.
        stop_reason: vLLM's stop string or token.
        generation_s: Generation time in seconds.
        expires_at_s: Unix time.
        vector: The question's embedding as half-precision bytes; empty if it was not needed.
        is_comparable: Whether it may answer a question in other words.
    """

    id: str
    scope: str
    tenant: str
    subjects: tuple[str, ...]
    question: str
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    stop_reason: int | str | None
    generation_s: float
    expires_at_s: float
    vector: bytes = b""
    is_comparable: bool = False


# Half precision deviates by less than this.
_MOST_DEVIATION = 0.05
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(CacheEntry)


def encode_entry(entry: CacheEntry) -> bytes:
    """Return the entry as MessagePack."""
    return _ENCODER.encode(entry)


def decode_entry(data: bytes, entry_id: str) -> CacheEntry:
    """Return the entry that `encode_entry` packed under this id.

    Raises:
        CorruptEntryError: If the bytes are not an entry, or a different one.
    """
    try:
        entry = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptEntryError(str(error)) from error
    if entry.id != entry_id:
        raise CorruptEntryError(f"entry {entry.id[:12]} stored under the id {entry_id[:12]}")
    if entry.vector:
        _check_vector(entry.vector)
    return entry


def _check_vector(vector: bytes) -> None:
    """Raise CorruptEntryError unless it is an embedding: all questions are compared with it."""
    if len(vector) != 2 * DIMENSIONS:
        raise CorruptEntryError(f"an embedding has {len(vector)} bytes, not {2 * DIMENSIONS}")
    values = np.frombuffer(vector, np.float16).astype(np.float32)
    # Of not a number, too.
    if not abs(float(values @ values) - 1) < _MOST_DEVIATION:
        raise CorruptEntryError("an embedding has not the length 1")
