import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.segment import HEADER, RECORD, Scan, encode_header, encode_record, scan

bodies_strategy = st.lists(st.binary(min_size=1, max_size=200), max_size=8)


def write(created_ns: int, bodies: list[bytes]) -> bytes:
    records = b"".join(encode_record(body) + body for body in bodies)
    return encode_header(created_ns) + records


@given(st.integers(0, 2**64 - 1), bodies_strategy)
def test_what_was_written_is_intact(created_ns: int, bodies: list[bytes]) -> None:
    data = write(created_ns, bodies)
    assert scan(data) == Scan(created_ns, len(bodies), len(data))


@given(bodies_strategy, st.binary(min_size=1, max_size=100))
def test_a_cut_anywhere_in_the_last_record_loses_that_record_alone(
    bodies: list[bytes], last: bytes
) -> None:
    before = write(7, bodies)
    data = write(7, [*bodies, last])
    for end in range(len(before), len(data)):
        assert scan(data[:end]) == Scan(7, len(bodies), len(before)), end


def test_a_cut_in_the_header_leaves_nothing() -> None:
    data = write(7, [b"body"])
    for end in range(HEADER.size):
        assert scan(data[:end]) == Scan(None, 0, 0), end


def test_a_flipped_bit_anywhere_in_a_record_ends_the_intact_part_before_it() -> None:
    before = write(7, [b"first"])
    data = write(7, [b"first", b"second", b"third"])
    for position in range(len(before), len(before) + RECORD.size + len(b"second")):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            assert scan(bytes(damaged)) == Scan(7, 1, len(before)), (position, bit)


@given(st.binary(max_size=400))
def test_any_bytes_are_scanned_without_an_error(data: bytes) -> None:
    assert 0 <= scan(data).num_bytes <= len(data)


def test_the_checksum_is_crc_32_of_length_and_body() -> None:
    _, length, checksum = RECORD.unpack(encode_record(b"hello"))
    assert (length, checksum) == (5, zlib.crc32(b"\x05\x00\x00\x00hello"))


def test_a_segment_is_one_protobuf_message_with_the_spans_of_all_its_records() -> None:
    bodies = []
    for name in ("a", "b"):
        request = ExportTraceServiceRequest()
        request.resource_spans.add().scope_spans.add().spans.add(name=name)
        bodies.append(request.SerializeToString())
    whole = ExportTraceServiceRequest.FromString(write(7, bodies))
    names = [r.scope_spans[0].spans[0].name for r in whole.resource_spans]
    assert names == ["a", "b"]


@pytest.mark.parametrize("length", [0, 1, 2**31])
def test_a_record_of_a_wrong_length_is_not_intact(length: int) -> None:
    data = encode_header(7) + RECORD.pack(b"\xc9\x3e", length, 0)
    assert scan(data + b"x").num_records == 0
