"""How a log segment lies on disk: a file that the store can read as it is.

A segment is one protobuf message (schema/otlp_traces.proto): concatenated OTLP trace requests,
with a checksum before each, hidden in fields that OTLP does not use.

    file   = header record*
    header = field 1000, fixed64: when the segment was begun, Unix nanoseconds
    record = field 1001, fixed64: body length | CRC-32 of length and body << 32
             body: the bytes of one ExportTraceServiceRequest, never empty

So a sealed segment needs no rewriting to be inserted, and a torn tail is found by its checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from isal import isal_zlib

HEADER = struct.Struct("<2sQ")
RECORD = struct.Struct("<2sII")
HEADER_TAG = b"\xc1\x3e"  # (1000 << 3) | 1 as a varint
RECORD_TAG = b"\xc9\x3e"  # (1001 << 3) | 1 as a varint
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Scan:
    """What is intact at the front of a segment.

    Attributes:
        created_ns: When it was begun; None if not even the header is whole.
        num_records: How many records are intact.
        num_bytes: Where the last intact record ends; what follows is torn.
    """

    created_ns: int | None
    num_records: int
    num_bytes: int


def encode_header(created_ns: int) -> bytes:
    """Return the first bytes of a segment."""
    return HEADER.pack(HEADER_TAG, created_ns)


def encode_record(body: bytes) -> bytes:
    """Return the bytes that go before `body` in the segment."""
    return RECORD.pack(RECORD_TAG, len(body), _checksum(body))


def scan(data: bytes | memoryview) -> Scan:
    """Return how far a segment is intact; never raises, whatever the bytes are."""
    view = memoryview(data)
    if len(view) < HEADER.size:
        return Scan(None, 0, 0)
    tag, created_ns = HEADER.unpack_from(view)
    if tag != HEADER_TAG:
        return Scan(None, 0, 0)
    num_records, end = 0, HEADER.size
    while len(view) - end > RECORD.size:
        tag, length, checksum = RECORD.unpack_from(view, end)
        body = view[end + RECORD.size : end + RECORD.size + length]
        if tag != RECORD_TAG or length == 0 or len(body) < length or checksum != _checksum(body):
            break
        num_records += 1
        end += RECORD.size + length
    return Scan(created_ns, num_records, end)


def encode_segment(created_ns: int, bodies: Iterable[bytes]) -> bytes:
    """Return a whole segment that holds these bodies."""
    parts = [encode_header(created_ns)]
    for body in bodies:
        parts += (encode_record(body), body)
    return b"".join(parts)


def read_bodies(data: bytes) -> list[bytes]:
    """Return the bodies of the intact records at the front of a segment."""
    bodies, end = [], HEADER.size
    intact = scan(data).num_bytes
    while end < intact:
        _, length, _ = RECORD.unpack_from(data, end)
        end += RECORD.size + length
        bodies.append(data[end - length : end])
    return bodies


def _checksum(body: bytes | memoryview) -> int:
    return int(isal_zlib.crc32(body, isal_zlib.crc32(_LENGTH.pack(len(body)))))
