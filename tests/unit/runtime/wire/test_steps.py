"""The codec of step records: what goes in comes out, and nothing else is taken for a batch."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.wire.steps import (
    ENTRY,
    ENTRY_TYPE,
    MAX_ID_BYTES,
    REPEATED,
    STEP,
    STEP_TYPE,
    Admitted,
    Arrived,
    Batch,
    Left,
    RequestEvent,
    decode_batches,
    encode_batch,
)
from tests.fixtures.step_records import decode_batch

U8 = st.integers(0, 2**8 - 1)
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
NUM_STEP_FIELDS = len(STEP_TYPE.descr)
VALUE_OF_KIND = {"u1": U8, "<u4": U32, "<u8": U64}


def rows(row_type: np.dtype[np.void]) -> st.SearchStrategy[tuple[int, ...]]:
    kinds = [field[1] for field in row_type.descr]
    return st.tuples(*(VALUE_OF_KIND[kind.replace("|", "")] for kind in kinds))


ENTRIES = rows(ENTRY_TYPE)
NOTES = st.one_of(
    st.builds(
        Arrived,
        U32,
        U64,
        U32,
        st.text(max_size=80).filter(lambda s: s.encode("utf-8", "ignore")),
        st.text(max_size=20),
    ),
    st.builds(Admitted, U32, U32, U32, U32, U64, st.none() | st.integers(0, 2**32 - 2)),
    st.builds(Left, U32, U64),
)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Steps and their entries, the steps' counts agreeing with them."""
    at = (STEP_TYPE.names or ()).index("num_entries")
    steps, entries = [], []
    for step in draw(st.lists(rows(STEP_TYPE), max_size=5)):
        own = draw(st.lists(ENTRIES, max_size=4))
        steps.append((*step[:at], len(own), *step[at + 1 :]))
        entries += own
    return steps, entries


@given(batches(), st.lists(NOTES, max_size=5), st.integers(0, 2**16 - 1), U64, U64)
def test_a_batch_survives_the_journey(
    content: tuple[list[tuple[int, ...]], list[tuple[int, ...]]],
    events: list[Arrived | Admitted | Left],
    engine: int,
    sequence: int,
    lost_steps: int,
) -> None:
    steps, entries = content
    batch = decode_batch(
        encode_batch(
            engine,
            sequence,
            lost_steps,
            [STEP.pack(*step) for step in steps],
            [ENTRY.pack(*entry) for entry in entries],
            events,
        )
    )
    assert (batch.engine, batch.sequence, batch.lost_steps) == (engine, sequence, lost_steps)
    assert [tuple(map(int, row)) for row in batch.steps.tolist()] == steps
    assert [tuple(map(int, row)) for row in batch.entries.tolist()] == entries
    assert list(batch.events) == events


DECODE = st.tuples(U32, st.integers(0, 2**31), *(st.just(n) for n in (0, 0, 1, 0, 0, 1, 0, 0)))


@given(st.lists(DECODE, max_size=4), st.integers(1, 5), st.lists(DECODE, max_size=3))
def test_a_repeated_step_has_the_requests_of_the_one_before_with_a_token_more(
    first: list[tuple[int, ...]], times: int, last: list[tuple[int, ...]]
) -> None:
    def step(num_entries: int) -> bytes:
        at = (STEP_TYPE.names or ()).index("num_entries")
        return STEP.pack(*(0,) * at, num_entries, 0)

    steps = [step(len(first)), *[step(REPEATED)] * times, step(len(last))]
    batch = decode_batch(
        encode_batch(0, 0, 0, steps, [ENTRY.pack(*e) for e in (*first, *last)], [])
    )
    expected = [
        (number, context + age, *rest)
        for age in range(times + 1)
        for number, context, *rest in first
    ]
    assert batch.steps["num_entries"].tolist() == [len(first)] * (times + 1) + [len(last)]
    assert [tuple(map(int, row)) for row in batch.entries.tolist()] == [*expected, *last]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.booleans()), max_size=12))
def test_joined_batches_hold_what_the_single_ones_held(kinds: list[tuple[int, int, bool]]) -> None:
    sequences = [0, 0]
    messages: list[bytes] = []
    for number, (engine, lost_steps, is_missed) in enumerate(kinds):
        sequences[engine] += 1 + is_missed
        step = STEP.pack(number, *(0,) * (NUM_STEP_FIELDS - 3), 1, 0)
        entry = ENTRY.pack(number, *(0,) * 9)
        data = encode_batch(
            engine, sequences[engine], lost_steps, [step], [entry], [Left(number, 1)]
        )
        messages += [data, b"no batch"]
    joined, errors = decode_batches(messages)
    assert len(errors) == len(kinds)
    batches = list(map(decode_batch, messages[::2]))
    numbers = [n for batch in joined for n in batch.steps["step"].tolist()]
    assert numbers == list(range(len(kinds)))
    assert [n for batch in joined for n in batch.entries["request"].tolist()] == numbers
    assert [event.request for batch in joined for event in batch.events] == numbers
    assert sum(batch.num_joined for batch in joined) == len(kinds)
    at = 0
    for batch in joined:
        for place, one in enumerate(batches[at : at + batch.num_joined]):
            assert (one.engine, one.lost_steps) == (batch.engine, batch.lost_steps)
            assert one.sequence == batch.sequence + place
        at += batch.num_joined


@given(st.binary(max_size=200))
def test_bytes_of_another_kind_are_refused_in_one_way(data: bytes) -> None:
    with pytest.raises(ValueError, match="batch"):
        decode_batch(data)


@given(batches(), st.data())
def test_a_batch_cut_short_is_refused_or_lacks_whole_notes_only(
    content: tuple[list[tuple[int, ...]], list[tuple[int, ...]]], data: st.DataObject
) -> None:
    steps, entries = content
    events: list[RequestEvent] = [Arrived(1, 2, 3, "cmpl-1", "acme"), Left(1, 9)]
    whole = encode_batch(
        0, 0, 0, [STEP.pack(*s) for s in steps], [ENTRY.pack(*e) for e in entries], events
    )
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    batch: Batch | None = None
    try:
        batch = decode_batch(cut)
    except ValueError:
        return
    assert len(batch.steps) == len(steps)
    assert list(batch.events) == events[: len(batch.events)]


MALFORMED = {
    "a repeated step at its begin": encode_batch(
        0, 0, 0, [STEP.pack(*(0,) * (NUM_STEP_FIELDS - 2), REPEATED, 0)], [], []
    ),
    "another magic": b"EKS0" + b"\0" * 40,
    "an unknown kind of event": encode_batch(0, 0, 0, [], [], []) + struct.pack("<BI", 9, 0),
    "a request id that is missing": encode_batch(0, 0, 0, [], [], [])
    + struct.pack("<BIQIHH", 1, 0, 0, 0, 50, 0),
    "a tenant that is missing": encode_batch(0, 0, 0, [], [], [])
    + struct.pack("<BIQIHH", 1, 0, 0, 0, 1, 9)
    + b"x",
    "more entries than its steps announce": encode_batch(0, 0, 0, [], [ENTRY.pack(*(0,) * 10)], []),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_batch_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="batch"):
        decode_batch(data)


def test_an_endless_request_id_is_cut_and_the_rest_survives() -> None:
    events: list[RequestEvent] = [Arrived(1, 2, 3, "ü" * MAX_ID_BYTES), Left(1, 4)]
    read = decode_batch(encode_batch(0, 0, 0, [], [], events)).events
    assert isinstance(read[0], Arrived)
    assert read[0].request_id == "ü" * (MAX_ID_BYTES // 2)
    assert read[1] == events[1]


def test_the_sizes_of_records_are_what_the_docs_say() -> None:
    assert (STEP.size, ENTRY.size) == (STEP_TYPE.itemsize, ENTRY_TYPE.itemsize) == (85, 22)
