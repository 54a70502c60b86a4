"""Encode and decode engine steps as batches of fixed-size binary records.

A batch is one message: a header, all its steps, the requests of each step in turn, and the events.
Step records have one size, request records another, so a reader maps a batch into two NumPy arrays
without touching single records. All numbers are little-endian; times are nanoseconds of the
machine's monotonic clock, which all its processes share.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"EKS4"

# One engine step. `blocks_cached` counts blocks that a later prompt can reuse, in use or not.
_STEP_FIELDS = (
    ("step", "Q"),
    ("start_ns", "Q"),
    ("end_ns", "Q"),
    ("schedule_ns", "I"),
    ("prefill_tokens", "I"),
    ("decode_tokens", "I"),
    ("drafted_tokens", "I"),
    ("accepted_tokens", "I"),
    ("num_running", "I"),
    ("num_waiting", "I"),
    ("num_waiting_grammar", "I"),
    ("num_waiting_remote_kv", "I"),
    ("num_waiting_other", "I"),
    ("num_preempted", "I"),
    ("blocks_total", "I"),
    ("blocks_free", "I"),
    ("blocks_cached", "I"),
    ("num_entries", "I"),
    ("held_by", "B"),
)
# One request in one step. `context_tokens` were computed before the step; `recomputed_tokens` is
# the part of `prefill_tokens` that a preemption had discarded.
_ENTRY_FIELDS = (
    ("request", "I"),
    ("context_tokens", "I"),
    ("prefill_tokens", "I"),
    ("recomputed_tokens", "I"),
    ("decode_tokens", "B"),
    ("drafted_tokens", "B"),
    ("accepted_tokens", "B"),
    ("emitted_tokens", "B"),
    ("held_by", "B"),
    ("is_preempted", "B"),
)
_NUMPY_TYPE = {"B": "u1", "I": "<u4", "Q": "<u8"}


def _struct_of(fields: Sequence[tuple[str, str]]) -> struct.Struct:
    return struct.Struct("<" + "".join(code for _, code in fields))


STEP = _struct_of(_STEP_FIELDS)
ENTRY = _struct_of(_ENTRY_FIELDS)
STEP_TYPE = np.dtype([(name, _NUMPY_TYPE[code]) for name, code in _STEP_FIELDS])
ENTRY_TYPE = np.dtype([(name, _NUMPY_TYPE[code]) for name, code in _ENTRY_FIELDS])

_COUNT = struct.Struct("<I")
# Offset of `num_entries` in a step.
_COUNT_AT = struct.calcsize("<" + "".join(code for _, code in _STEP_FIELDS[:-2]))

_HEAD = struct.Struct("<4sHQQII")
_EVENT_HEAD = struct.Struct("<BI")
_ARRIVED = struct.Struct("<QIHH")
_ADMITTED = struct.Struct("<IIIQI")
_UNKNOWN = 0xFFFFFFFF
_LEFT = struct.Struct("<Q")
_KIND_ARRIVED, _KIND_ADMITTED, _KIND_LEFT = 1, 2, 3
# Longer ids are truncated, so that only such a request has no ledger.
MAX_ID_BYTES = 1024
MAX_TENANT_BYTES = 1024
MAX_BYTE = 255
# `num_entries` of a step that repeats the previous step of the batch, with each request decoding
# one more token: its entries are not sent.
REPEATED = 0xFFFFFFFF

StepArray = NDArray[Any]
EntryArray = NDArray[Any]


class Held(IntEnum):
    """Why the scheduler left a request waiting in a step."""

    NOT = 0
    BUDGET = 1
    KV = 2
    SEATS = 3
    GRAMMAR = 4
    REMOTE_KV = 5
    OTHER = 6


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request was added to the scheduler's queue.

    Attributes:
        request: Its number in this engine, used in step records.
        time_ns: When it was added.
        prompt_tokens: Length of its prompt.
        request_id: vLLM's internal id: the API's id with a random suffix.
        tenant: Its tenant; empty without one.
    """

    request: int
    time_ns: int
    prompt_tokens: int
    request_id: str
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request was scheduled for the first time.

    Attributes:
        request: Its number.
        cached_tokens: Prompt tokens found in the prefix cache.
        lost_tokens: Prompt tokens after those that were cached earlier and evicted.
        block_tokens: Tokens per block of the prefix cache.
        evicted_ns: When the first lost block was evicted; 0 if none was, or if unknown.
        evicted_by: Number of the request that got the block; None if unknown.
    """

    request: int
    cached_tokens: int
    lost_tokens: int
    block_tokens: int = 0
    evicted_ns: int = 0
    evicted_by: int | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """A request was finished or aborted; no later step contains it."""

    request: int
    time_ns: int


RequestEvent = Arrived | Admitted | Left


@dataclass(frozen=True, slots=True)
class Batch:
    """A decoded batch, or several consecutive ones joined.

    Attributes:
        engine: The engine's number among data-parallel ones.
        sequence: Number of the batch in this engine; a gap means that batches were lost.
        lost_steps: Steps that the engine could not send so far.
        steps: One `STEP_TYPE` row per step, in the order of their end.
        entries: One `ENTRY_TYPE` row per request in a step, `steps["num_entries"]` for each step.
        events: The events of requests, in order.
        num_joined: Number of batches joined; `sequence` is that of the first.
    """

    engine: int
    sequence: int
    lost_steps: int
    steps: StepArray
    entries: EntryArray
    events: tuple[RequestEvent, ...]
    num_joined: int = 1


def encode_batch(
    engine: int,
    sequence: int,
    lost_steps: int,
    steps: Sequence[bytes],
    entries: Sequence[bytes],
    events: Sequence[RequestEvent],
) -> bytes:
    """Return one message with packed steps, packed step requests, and events."""
    head = _HEAD.pack(MAGIC, engine, sequence, lost_steps, len(steps), len(entries))
    return b"".join((head, *steps, *entries, *map(_encode_event, events)))


@dataclass(frozen=True, slots=True)
class _Message:
    """The parts of one message."""

    engine: int
    sequence: int
    lost_steps: int
    steps: bytes
    entries: bytes
    events: tuple[RequestEvent, ...]


def decode_batches(messages: Sequence[bytes]) -> tuple[list[Batch], list[ValueError]]:
    """Return the batches in messages, and the errors of those that cannot be decoded.

    Consecutive messages of one engine are joined to one batch, which costs about as much as a
    single one.
    """
    errors: list[ValueError] = []
    parts: list[_Message] = []
    for data in messages:
        try:
            parts.append(_split(data))
        except ValueError as error:
            errors.append(error)
    batches: list[Batch] = []
    for _, group in groupby(enumerate(parts), lambda each: _series(*each)):
        members = [message for _, message in group]
        try:
            batches.append(_read_messages(members))
        except ValueError:
            for message in members:
                try:
                    batches.append(_read_messages([message]))
                except ValueError as error:
                    errors.append(error)
    return batches, errors


def _series(place: int, message: _Message) -> tuple[int, int, int]:
    """Return a key that is equal for consecutive messages of one engine without a loss between."""
    return message.engine, message.lost_steps, message.sequence - place


def _split(data: bytes) -> _Message:
    if len(data) < _HEAD.size:
        raise ValueError(f"batch of {len(data)} bytes is shorter than its header ({_HEAD.size})")
    magic, engine, sequence, lost_steps, num_steps, num_entries = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise ValueError(f"batch starts with {magic!r}, expected {MAGIC!r}")
    entries_at = _HEAD.size + num_steps * STEP.size
    events_at = entries_at + num_entries * ENTRY.size
    if len(data) < events_at:
        raise ValueError(f"batch of {len(data)} bytes is truncated, expected at least {events_at}")
    if num_steps and _COUNT.unpack_from(data, _HEAD.size + _COUNT_AT) == (REPEATED,):
        raise ValueError("batch starts with a repeated step")
    try:
        events = _decode_events(data, events_at)
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"batch has undecodable events: {error}") from error
    steps, entries = data[_HEAD.size : entries_at], data[entries_at:events_at]
    return _Message(engine, sequence, lost_steps, steps, entries, events)


def _read_messages(messages: Sequence[_Message]) -> Batch:
    """Return consecutive messages as one batch.

    Raises:
        ValueError: If the number of entries does not match the steps.
    """
    first = messages[0]
    steps = np.frombuffer(b"".join(m.steps for m in messages), STEP_TYPE)
    entries = np.frombuffer(b"".join(m.entries for m in messages), ENTRY_TYPE)
    steps, entries = _expand_repeats(steps, entries)
    events = tuple(event for m in messages for event in m.events)
    return Batch(
        first.engine, first.sequence, first.lost_steps, steps, entries, events, len(messages)
    )


def _expand_repeats(steps: StepArray, entries: EntryArray) -> tuple[StepArray, EntryArray]:
    """Return steps and entries with the entries of repeated steps filled in.

    Raises:
        ValueError: If the number of entries does not match the steps.
    """
    is_repeated = steps["num_entries"] == REPEATED
    num_sent = np.where(is_repeated, 0, steps["num_entries"]).astype(np.int64)
    if int(num_sent.sum()) != len(entries):
        raise ValueError(f"batch has {len(entries)} entries, its steps need {int(num_sent.sum())}")
    if not is_repeated.any():
        return steps, entries
    places = np.arange(len(steps))
    source = np.maximum.accumulate(np.where(is_repeated, 0, places))
    num_entries = num_sent[source]
    starts = np.cumsum(num_sent) - num_sent
    shift = starts[source] - (np.cumsum(num_entries) - num_entries)
    expanded = entries[np.arange(int(num_entries.sum())) + np.repeat(shift, num_entries)]
    expanded["context_tokens"] += np.repeat(places - source, num_entries).astype(np.uint32)
    steps = steps.copy()
    steps["num_entries"] = num_entries
    return steps, expanded


def _encode_event(event: RequestEvent) -> bytes:
    match event:
        case Arrived(request, time_ns, prompt_tokens, request_id, tenant):
            name = request_id.encode("utf-8", "replace")[:MAX_ID_BYTES]
            owner = tenant.encode("utf-8", "replace")[:MAX_TENANT_BYTES]
            head = _EVENT_HEAD.pack(_KIND_ARRIVED, request)
            sizes = _ARRIVED.pack(time_ns, prompt_tokens, len(name), len(owner))
            return head + sizes + name + owner
        case Admitted(request, cached_tokens, lost_tokens, block_tokens, evicted_ns, evicted_by):
            head = _EVENT_HEAD.pack(_KIND_ADMITTED, request)
            by = _UNKNOWN if evicted_by is None else evicted_by
            return head + _ADMITTED.pack(cached_tokens, lost_tokens, block_tokens, evicted_ns, by)
        case Left(request, time_ns):
            return _EVENT_HEAD.pack(_KIND_LEFT, request) + _LEFT.pack(time_ns)


def _decode_events(data: bytes, at: int) -> tuple[RequestEvent, ...]:
    events: list[RequestEvent] = []
    while at < len(data):
        kind, request = _EVENT_HEAD.unpack_from(data, at)
        at += _EVENT_HEAD.size
        if kind == _KIND_ARRIVED:
            time_ns, prompt_tokens, length, owner_length = _ARRIVED.unpack_from(data, at)
            at += _ARRIVED.size
            text = data[at : at + length + owner_length]
            if len(text) < length + owner_length:
                raise ValueError("batch ends within a request id or a tenant")
            # A truncated text may end within a character.
            name, owner = (
                part.decode("utf-8", "replace") for part in (text[:length], text[length:])
            )
            events.append(Arrived(request, time_ns, prompt_tokens, name, owner))
            at += len(text)
        elif kind == _KIND_ADMITTED:
            cached, lost, block, evicted_ns, by = _ADMITTED.unpack_from(data, at)
            evicted_by = None if by == _UNKNOWN else by
            events.append(Admitted(request, cached, lost, block, evicted_ns, evicted_by))
            at += _ADMITTED.size
        elif kind == _KIND_LEFT:
            events.append(Left(request, *_LEFT.unpack_from(data, at)))
            at += _LEFT.size
        else:
            raise ValueError(f"batch has an event of unknown kind {kind}")
    return tuple(events)
