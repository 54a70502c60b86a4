import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel_collector.log.segment_format import (
    HEADER,
    RECORD,
    encode_header,
    encode_record,
    encode_segment,
    read_bodies,
    read_contents,
    read_file,
    time_of_whole,
)
from evenkeel_collector.log.segment_name import marker_of
from tests.fixtures.otlp_payload import old_segment

NAME = "00000000000000000007-node"
bodies_strategy = st.lists(st.binary(min_size=1, max_size=200), max_size=8)


@given(st.integers(0, 2**64 - 1), bodies_strategy)
def test_what_was_written_is_intact(created_ns: int, bodies: list[bytes]) -> None:
    data = encode_segment(NAME, created_ns, bodies)
    contents = read_contents(data)
    assert contents.is_sound
    assert contents.created_ns == created_ns
    assert contents.bodies_of(data) == bodies
    assert contents.torn_at == len(data)


def test_a_segment_is_whole_only_if_each_of_its_bytes_is_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    data = encode_segment(NAME, 8, [b"first", b"second"])
    path.write_bytes(data)
    assert time_of_whole(path) == 8
    others = [data[:end] for end in range(len(data)) if end != len(data) - len(b"second") - 27]
    others += [data + b"x", data + data[HEADER.size :], encode_segment(NAME, 8, [])]
    others += [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    for other in others:
        path.write_bytes(other)
        assert time_of_whole(path) is None, other


@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=8))
def test_a_segment_of_an_earlier_version_is_intact(bodies: list[bytes]) -> None:
    data = old_segment(7, bodies)
    contents = read_contents(data, NAME)
    assert (contents.is_sound, contents.created_ns) == (True, 7)
    assert contents.bodies_of(data) == bodies
    assert contents.torn_at == len(data)


@pytest.mark.parametrize("write", [old_segment, partial(encode_segment, NAME)])
def test_a_cut_anywhere_in_the_last_record_is_a_torn_tail(
    write: Callable[[int, list[bytes]], bytes],
) -> None:
    bodies = [b"first", b"second"]
    before = write(7, bodies)
    data = write(7, [*bodies, b"the last"])
    for end in range(len(before), len(data)):
        contents = read_contents(data[:end], NAME)
        assert contents.is_sound, end
        assert contents.bodies_of(data) == bodies
        assert contents.torn_at == len(before)


def test_a_cut_in_the_header_is_a_torn_tail() -> None:
    data = encode_header(NAME, 7)
    for end in range(HEADER.size):
        contents = read_contents(data[:end], NAME)
        assert (contents.is_sound, contents.bodies, contents.torn_at) == (True, [], 0), end


def test_a_flipped_bit_costs_the_record_that_it_is_in_and_no_other() -> None:
    bodies = [b"first", b"second", b"third"]
    data = encode_segment(NAME, 7, bodies)
    ends = [HEADER.size]
    for body in bodies:
        ends.append(ends[-1] + RECORD.size + len(body))
    for position in range(len(data)):
        intact = [
            body
            for body, begin, end in zip(bodies, ends, ends[1:], strict=False)
            if not begin <= position < end
        ]
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            contents = read_contents(bytes(damaged), NAME)
            assert contents.bodies_of(bytes(damaged)) == intact, (position, bit)
            assert not contents.is_sound


def test_a_flipped_bit_costs_an_earlier_versions_segment_one_record() -> None:
    data = old_segment(7, [b"first", b"second", b"third"])
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        assert len(read_bodies(bytes(damaged), NAME)) >= 2, position


def test_a_record_within_a_body_is_not_taken_for_one_when_the_body_is_damaged() -> None:
    forged = [
        old_segment(7, [b"forged"]),
        encode_segment("another", 7, [b"forged"]),
        encode_segment("00000000000000000008-node", 7, [b"forged"]),
    ]
    data = encode_segment(NAME, 7, [b"x" * 50 + one + b"y" * 50 for one in forged] + [b"last"])
    for zeros in ((0, HEADER.size + RECORD.size + 5), (HEADER.size + 2, HEADER.size + 60)):
        damaged = bytearray(data)
        for index in range(3):
            at = data.index(b"x" * 50) + index
            damaged[at] = 0
        damaged[slice(*zeros)] = bytes(zeros[1] - zeros[0])
        bodies = read_bodies(bytes(damaged), NAME)
        assert b"forged" not in bodies
        assert bodies[-1] == b"last"


def test_a_record_that_is_there_twice_is_read_once() -> None:
    data = encode_segment(NAME, 7, [b"first", b"second"])
    doubled = data + data[HEADER.size :]
    contents = read_contents(doubled, NAME)
    assert contents.bodies_of(doubled) == [b"first", b"second"]
    assert not contents.is_sound
    assert contents.repeated
    assert contents.cut == [(len(doubled), len(doubled))], "a copy is not kept as damage"


@given(st.binary(max_size=400), st.sampled_from([NAME, "", "x"]))
def test_any_bytes_are_read_without_an_error(data: bytes, name: str) -> None:
    contents = read_contents(data, name)
    assert 0 <= contents.torn_at <= len(data)
    assert contents.bodies == []


def test_the_checksums_are_crc_32_of_body_and_of_head() -> None:
    head = encode_record(marker_of(NAME), 3, b"hello")
    fields = struct.unpack("<2sB8sIIII", head)
    assert fields[:6] == (b"\xda\x3e", 24, marker_of(NAME), 3, 5, zlib.crc32(b"hello"))
    assert fields[6] == zlib.crc32(head[:-4])


def test_a_segment_is_one_protobuf_message_with_the_spans_of_all_its_records() -> None:
    bodies = []
    for name in ("a", "b"):
        request = ExportTraceServiceRequest()
        request.resource_spans.add().scope_spans.add().spans.add(name=name)
        bodies.append(request.SerializeToString())
    whole = ExportTraceServiceRequest.FromString(encode_segment(NAME, 7, bodies))
    names = [r.scope_spans[0].spans[0].name for r in whole.resource_spans]
    assert names == ["a", "b"]


@pytest.mark.parametrize("length", [0, 1, 2**31])
def test_a_record_of_a_wrong_length_is_not_intact(length: int) -> None:
    wrong = struct.pack("<2sII", b"\xc9\x3e", length, 0)
    assert read_bodies(old_segment(7, []) + wrong + b"x", NAME) == []


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        read_file(tmp_path)
