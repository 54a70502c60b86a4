"""How engine steps travel from the engine's process: fixed-size binary records in batches.

A batch is one message: a header, then all its steps, then the requests of each step in turn, then
the notes. Steps and step requests have one size each, so that a reader maps a batch
into two NumPy arrays without touching the single record. All numbers are little-endian; times are
nanoseconds of the machine's monotonic clock, which all its processes share.
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

MAGIC = b"EKS3"

# Of one engine step. `blocks_cached` counts blocks that a later prompt can reuse, in use or not.
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
# Of one request in one step. `context_tokens` are those computed before the step;
# `recomputed_tokens` is the part of `prefill_tokens` that a preemption had thrown away.
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
# Where `num_entries` is in a step.
_COUNT_AT = struct.calcsize("<" + "".join(code for _, code in _STEP_FIELDS[:-2]))

_HEAD = struct.Struct("<4sHQQII")
_NOTE_HEAD = struct.Struct("<BI")
_ARRIVED = struct.Struct("<QIH")
_ADMITTED = struct.Struct("<IIIQI")
_NOBODY = 0xFFFFFFFF
_LEFT = struct.Struct("<Q")
_KIND_ARRIVED, _KIND_ADMITTED, _KIND_LEFT = 1, 2, 3
# Longer ids are cut: such a request has no ledger, and every other one still has.
MAX_ID_BYTES = 1024
MAX_BYTE = 255
# `num_entries` of a step with the requests of the step before it in the batch, each of which
# decodes one token again: their entries are not sent.
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
    """A request reached the scheduler's queue; `request` is its number in this engine.

    Attributes:
        request: The number by which step requests name it.
        time_ns: When the scheduler took it in.
        prompt_tokens: Length of its prompt.
        request_id: vLLM's internal id: the API's id with a random suffix.
    """

    request: int
    time_ns: int
    prompt_tokens: int
    request_id: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request was scheduled for the first time.

    Attributes:
        request: Its number.
        cached_tokens: Prompt tokens that the prefix cache held.
        lost_tokens: Prompt tokens after those that it had held before and lost to eviction.
        block_tokens: Tokens of one block of the prefix cache.
        evicted_ns: When the first lost block was evicted; 0 where none was, or it is not known.
        evicted_by: Number of the request that got its room; None where that is not known.
    """

    request: int
    cached_tokens: int
    lost_tokens: int
    block_tokens: int = 0
    evicted_ns: int = 0
    evicted_by: int | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """A request is finished or aborted; no later step holds it."""

    request: int
    time_ns: int


Note = Arrived | Admitted | Left


@dataclass(frozen=True, slots=True)
class Batch:
    """What one message holds.

    Attributes:
        engine: The engine's number among data-parallel ones.
        sequence: Number of the batch in this engine; a jump says that batches were lost.
        lost_steps: Steps that the engine could not send so far.
        steps: One `STEP_TYPE` row a step, in the order of their end.
        entries: One `ENTRY_TYPE` row a request in a step, `steps["num_entries"]` of them each.
        notes: What happened to requests, in order.
        num_joined: How many batches this is, `sequence` being that of the first.
    """

    engine: int
    sequence: int
    lost_steps: int
    steps: StepArray
    entries: EntryArray
    notes: tuple[Note, ...]
    num_joined: int = 1


def encode_batch(
    engine: int,
    sequence: int,
    lost_steps: int,
    steps: Sequence[bytes],
    entries: Sequence[bytes],
    notes: Sequence[Note],
) -> bytes:
    """Return one message of packed steps, packed step requests, and notes."""
    head = _HEAD.pack(MAGIC, engine, sequence, lost_steps, len(steps), len(entries))
    return b"".join((head, *steps, *entries, *map(_encode_note, notes)))


@dataclass(frozen=True, slots=True)
class _Message:
    """One message in its parts."""

    engine: int
    sequence: int
    lost_steps: int
    steps: bytes
    entries: bytes
    notes: tuple[Note, ...]


def decode_batch(data: bytes) -> Batch:
    """Return the batch in one message.

    Raises:
        ValueError: If `data` is not such a message.
    """
    return _read_messages([_take_apart(data)])


def decode_batches(messages: Sequence[bytes]) -> tuple[list[Batch], list[ValueError]]:
    """Return what messages hold, and why some could not be read.

    Those of one engine that follow each other without a loss are read as one batch: it costs about
    as much as a single one.
    """
    errors: list[ValueError] = []
    parts: list[_Message] = []
    for data in messages:
        try:
            parts.append(_take_apart(data))
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
    """What messages have in common that can be joined: their numbers grow as their places do."""
    return message.engine, message.lost_steps, message.sequence - place


def _take_apart(data: bytes) -> _Message:
    if len(data) < _HEAD.size:
        raise ValueError(f"a batch of {len(data)} bytes is shorter than its head")
    magic, engine, sequence, lost_steps, num_steps, num_entries = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise ValueError(f"a batch begins with {magic!r}, expected {MAGIC!r}")
    entries_at = _HEAD.size + num_steps * STEP.size
    notes_at = entries_at + num_entries * ENTRY.size
    if len(data) < notes_at:
        raise ValueError(f"a batch of {len(data)} bytes announces at least {notes_at}")
    if num_steps and _COUNT.unpack_from(data, _HEAD.size + _COUNT_AT) == (REPEATED,):
        raise ValueError("a batch begins with a repeated step")
    try:
        notes = _decode_notes(data, notes_at)
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"a batch's notes cannot be read: {error}") from error
    steps, entries = data[_HEAD.size : entries_at], data[entries_at:notes_at]
    return _Message(engine, sequence, lost_steps, steps, entries, notes)


def _read_messages(messages: Sequence[_Message]) -> Batch:
    """Return messages that follow each other as one batch.

    Raises:
        ValueError: If they hold other requests than their steps announce.
    """
    first = messages[0]
    steps = np.frombuffer(b"".join(m.steps for m in messages), STEP_TYPE)
    entries = np.frombuffer(b"".join(m.entries for m in messages), ENTRY_TYPE)
    steps, entries = _spell_out(steps, entries)
    notes = tuple(note for m in messages for note in m.notes)
    return Batch(
        first.engine, first.sequence, first.lost_steps, steps, entries, notes, len(messages)
    )


def _spell_out(steps: StepArray, entries: EntryArray) -> tuple[StepArray, EntryArray]:
    """Return steps and entries with each repeated step's requests written out.

    Raises:
        ValueError: If the entries are not those of the steps.
    """
    is_repeated = steps["num_entries"] == REPEATED
    num_sent = np.where(is_repeated, 0, steps["num_entries"]).astype(np.int64)
    if int(num_sent.sum()) != len(entries):
        raise ValueError("a batch's steps announce other requests than it holds")
    if not is_repeated.any():
        return steps, entries
    places = np.arange(len(steps))
    source = np.maximum.accumulate(np.where(is_repeated, 0, places))
    num_entries = num_sent[source]
    starts = np.cumsum(num_sent) - num_sent
    shift = starts[source] - (np.cumsum(num_entries) - num_entries)
    spelled = entries[np.arange(int(num_entries.sum())) + np.repeat(shift, num_entries)]
    spelled["context_tokens"] += np.repeat(places - source, num_entries).astype(np.uint32)
    steps = steps.copy()
    steps["num_entries"] = num_entries
    return steps, spelled


def _encode_note(note: Note) -> bytes:
    match note:
        case Arrived(request, time_ns, prompt_tokens, request_id):
            name = request_id.encode("utf-8", "replace")[:MAX_ID_BYTES]
            head = _NOTE_HEAD.pack(_KIND_ARRIVED, request)
            return head + _ARRIVED.pack(time_ns, prompt_tokens, len(name)) + name
        case Admitted(request, cached_tokens, lost_tokens, block_tokens, evicted_ns, evicted_by):
            head = _NOTE_HEAD.pack(_KIND_ADMITTED, request)
            by = _NOBODY if evicted_by is None else evicted_by
            return head + _ADMITTED.pack(cached_tokens, lost_tokens, block_tokens, evicted_ns, by)
        case Left(request, time_ns):
            return _NOTE_HEAD.pack(_KIND_LEFT, request) + _LEFT.pack(time_ns)


def _decode_notes(data: bytes, at: int) -> tuple[Note, ...]:
    notes: list[Note] = []
    while at < len(data):
        kind, request = _NOTE_HEAD.unpack_from(data, at)
        at += _NOTE_HEAD.size
        if kind == _KIND_ARRIVED:
            time_ns, prompt_tokens, length = _ARRIVED.unpack_from(data, at)
            at += _ARRIVED.size
            name = data[at : at + length]
            if len(name) < length:
                raise ValueError("a batch ends within a request id")
            # A cut id may end within a character.
            notes.append(Arrived(request, time_ns, prompt_tokens, name.decode("utf-8", "replace")))
            at += length
        elif kind == _KIND_ADMITTED:
            cached, lost, block, evicted_ns, by = _ADMITTED.unpack_from(data, at)
            evicted_by = None if by == _NOBODY else by
            notes.append(Admitted(request, cached, lost, block, evicted_ns, evicted_by))
            at += _ADMITTED.size
        elif kind == _KIND_LEFT:
            notes.append(Left(request, *_LEFT.unpack_from(data, at)))
            at += _LEFT.size
        else:
            raise ValueError(f"a batch holds a note of unknown kind {kind}")
    return tuple(notes)
