"""The on-disk format of a log segment: a file that the store can read as it is.

A segment is one protobuf message (schema/otlp_traces.proto): concatenated OTLP trace requests,
with a head before each, hidden in fields that OTLP does not use.

    file   = header record*
    header = field 1000, fixed64: when the segment was started, Unix nanoseconds
             field 1004, bytes: marker (8) | CRC-32 of the header before it
    record = field 1003, bytes: marker (8) | number | body length | CRC-32 of the body
             | CRC-32 of the head before it, each of the last four a fixed32
             body: the bytes of one ExportTraceServiceRequest, never empty; field 1005, the
              body's digest (log/repeats.py), may precede them

So a sealed segment is inserted without rewriting, a torn tail is found by its checksum, and after
damage reading resumes at the next record whose checksums match. The marker is a hash of the
segment's name, which no sender knows: bytes in a body cannot pass for a record. The number lets a
duplicated record be read once (docs/decisions/0199).

Segments of earlier versions can be read too: they have no field 1004, and their records are

    record = field 1001, fixed64: body length | CRC-32 of length and body << 32, and the body
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from isal import isal_zlib

from evenkeel_collector.log.segment_name import MARKER_BYTES, marker_of, time_of

_HEADER_FRONT = struct.Struct(f"<2sQ2sB{MARKER_BYTES}s")
HEADER = struct.Struct(f"<{_HEADER_FRONT.size}sI")
_RECORD_FRONT = struct.Struct(f"<2sB{MARKER_BYTES}sIII")
RECORD = struct.Struct(f"<{_RECORD_FRONT.size}sI")
_TIME_TAG = b"\xc1\x3e"  # (1000 << 3) | 1 as a varint
_MARKER_TAG = b"\xe2\x3e"  # (1004 << 3) | 2
_RECORD_TAG = b"\xda\x3e"  # (1003 << 3) | 2
_MARKER_FIELD_BYTES = HEADER.size - struct.calcsize("<2sQ2sB")
_RECORD_FIELD_BYTES = RECORD.size - struct.calcsize("<2sB")

_OLD_HEADER = struct.Struct("<2sQ")
_OLD_RECORD = struct.Struct("<2sII")
_OLD_RECORD_TAG = b"\xc9\x3e"  # (1001 << 3) | 1
_LENGTH = struct.Struct("<I")
# A sender could fill a body with what looks like heads of earlier versions, each of which is
# checked against the rest of the file: the search stops after this multiple of the file's bytes.
_OLD_SEARCH_FACTOR = 16

# Larger than any segment: segments are sealed long before.
MAX_SEGMENT_BYTES = 1 << 29
_READ_BYTES = 1 << 18


Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SegmentContents:
    """The intact and damaged parts of a segment; each byte is in one of them or in the header.

    Attributes:
        created_ns: When it was started; None if that cannot be read.
        marker: The marker of its records; empty for an earlier version's.
        bodies: Positions of the bodies of intact records, in file order.
        damage: Start and end of bytes that belong to no intact record.
        repeated: Positions of intact records that occurred before.
        torn_at: Start of a record that was cut off because the writer stopped; the end of the
            bytes if there is none.
        num_bytes: Number of bytes.
    """

    created_ns: int | None
    marker: bytes
    bodies: list[Span]
    damage: list[Span]
    repeated: list[Span]
    torn_at: int
    num_bytes: int

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong except for a torn tail."""
        return self.created_ns is not None and not self.damage and not self.repeated

    @property
    def cut(self) -> list[Span]:
        """The positions of all bytes that are in no intact record."""
        return [*self.damage, (self.torn_at, self.num_bytes)]

    def bodies_of(self, data: bytes) -> list[bytes]:
        """Return the intact bodies from the bytes that these contents describe."""
        return [data[begin:end] for begin, end in self.bodies]


def encode_header(name: str, created_ns: int) -> bytes:
    """Return the first bytes of the segment with this name."""
    front = _HEADER_FRONT.pack(
        _TIME_TAG, created_ns, _MARKER_TAG, _MARKER_FIELD_BYTES, marker_of(name)
    )
    return HEADER.pack(front, _checksum(front))


def encode_record(marker: bytes, number: int, body: bytes) -> bytes:
    """Return the bytes that precede `body` as record `number`, counted from 0."""
    front = _RECORD_FRONT.pack(
        _RECORD_TAG, _RECORD_FIELD_BYTES, marker, number, len(body), _checksum(body)
    )
    return RECORD.pack(front, _checksum(front))


def encode_segment(name: str, created_ns: int, bodies: Iterable[bytes]) -> bytes:
    """Return a complete segment with these bodies."""
    marker = marker_of(name)
    parts = [encode_header(name, created_ns)]
    for number, body in enumerate(bodies):
        parts += (encode_record(marker, number, body), body)
    return b"".join(parts)


def read_bodies(data: bytes, name: str = "") -> list[bytes]:
    """Return the bodies of the intact records of a segment."""
    return read_contents(data, name).bodies_of(data)


def time_of_whole(path: Path) -> int | None:
    """Return when a fully intact segment was started; None if any byte is damaged.

    Reads record by record into the same buffer, which takes a third of the time of reading the
    whole file.

    Raises:
        OSError: As `read_file`.
    """
    _check_file(path)
    with path.open("rb", buffering=_READ_BYTES) as file:
        front, checksum = HEADER.unpack(file.read(HEADER.size).ljust(HEADER.size, b"\0"))
        time_tag, created_ns, tag, size, marker = _HEADER_FRONT.unpack(front)
        if (time_tag, tag, size) != (_TIME_TAG, _MARKER_TAG, _MARKER_FIELD_BYTES) or (
            checksum != _checksum(front)
        ):
            return None
        number = 0
        while head := file.read(RECORD.size):
            if len(head) < RECORD.size:
                return None
            (length,) = _LENGTH.unpack_from(head, RECORD.size - 3 * _LENGTH.size)
            body = file.read(length if length <= MAX_SEGMENT_BYTES else 0)
            if head != encode_record(marker, number, body) or not body:
                return None
            number += 1
    return int(created_ns) if number else None


def read_file(path: Path) -> bytes:
    """Return the bytes of a file that may be a segment.

    Raises:
        OSError: If it cannot be read, is not a file, or is larger than any segment.
    """
    _check_file(path)
    return path.read_bytes()


def _check_file(path: Path) -> None:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        # Reading a pipe would block until something is written to it.
        raise OSError("not a regular file")
    if status.st_size > MAX_SEGMENT_BYTES:
        raise OSError(f"{status.st_size} bytes, expected at most {MAX_SEGMENT_BYTES}")


def read_contents(data: bytes, name: str = "") -> SegmentContents:
    """Return the intact and damaged parts of a segment; never raises, whatever the bytes are.

    Args:
        data: The bytes of the file.
        name: The segment's name, which replaces a damaged header.
    """
    if len(data) >= HEADER.size:
        front, checksum = HEADER.unpack_from(data)
        time_tag, created_ns, tag, size, marker = _HEADER_FRONT.unpack(front)
        if (time_tag, tag, size) == (_TIME_TAG, _MARKER_TAG, _MARKER_FIELD_BYTES) and (
            checksum == _checksum(front)
        ):
            return _Reader(data, marker).read(created_ns, HEADER.size)
    created_ns = time_of(name)
    if created_ns is not None and encode_header(name, created_ns).startswith(data):
        # The writer stopped within the header, whose start earlier versions wrote too.
        return SegmentContents(created_ns, marker_of(name), [], [], [], 0, len(data))
    if marker_of(name) in data:
        return _Reader(data, marker_of(name)).read(None, 0)
    return _read_old(data, created_ns)


def _read_old(data: bytes, created_ns: int | None) -> SegmentContents:
    if len(data) < _OLD_HEADER.size:
        return _OldReader(data).read(None, 0)
    tag, said_ns = _OLD_HEADER.unpack_from(data)
    # This header has no checksum; the name holds the same time.
    if tag != _TIME_TAG or created_ns not in (None, said_ns):
        return _OldReader(data).read(None, 0)
    return _OldReader(data).read(said_ns, _OLD_HEADER.size)


class _Reader:
    """Reads one segment's records, from one intact record to the next."""

    def __init__(self, data: bytes, marker: bytes) -> None:
        self._data = data
        self._view = memoryview(data)
        self._marker = marker
        self._start = struct.pack(f"<2sB{len(marker)}s", _RECORD_TAG, _RECORD_FIELD_BYTES, marker)

    def read(self, created_ns: int | None, at: int) -> SegmentContents:
        """Return the intact parts from `at` on, where the header ends or would end."""
        bodies, damage, repeated = [], [], []
        seen: set[int] = set()
        end = at
        while 0 <= at < len(self._data):
            body = self._body_at(at)
            if body is None:
                at = self._next(at + 1)
                continue
            if at > end:
                damage.append((end, at))
            number = self._number_at(at, len(seen))
            if number in seen:
                repeated.append((at, body[1]))
            else:
                seen.add(number)
                bodies.append(body)
            at = end = body[1]
        torn_at = len(self._data)
        if end < len(self._data):
            if self._is_torn(end, seen):
                torn_at = end
            else:
                damage.append((end, len(self._data)))
        return SegmentContents(
            created_ns, self._marker, bodies, damage, repeated, torn_at, len(self._data)
        )

    def _next(self, at: int) -> int:
        """Return where the next record may start, -1 if nowhere."""
        return self._data.find(self._start, at)

    def _body_at(self, at: int) -> Span | None:
        """Return the position of the body of an intact record that starts here, else None."""
        length = self._length_at(at)
        begin = at + RECORD.size
        if length is None or begin + length > len(self._data):
            return None
        (checksum,) = _LENGTH.unpack_from(self._data, begin - 8)
        is_intact = length > 0 and checksum == _checksum(self._view[begin : begin + length])
        return (begin, begin + length) if is_intact else None

    def _length_at(self, at: int) -> int | None:
        """Return the fields of an intact head at this position."""
        if at + RECORD.size > len(self._data):
            return None
        front, checksum = RECORD.unpack_from(self._data, at)
        if not front.startswith(self._start) or checksum != _checksum(front):
            return None
        return int(_LENGTH.unpack_from(front, len(self._start) + _LENGTH.size)[0])

    def _number_at(self, at: int, count: int) -> int:
        del count  # These records carry their own numbers.
        return int(_LENGTH.unpack_from(self._data, at + len(self._start))[0])

    def _is_torn(self, at: int, seen: set[int]) -> bool:
        """Whether the remaining bytes can be the start of the next record."""
        expected = self._start + _LENGTH.pack(max(seen, default=-1) + 1)
        head = self._data[at : at + RECORD.size]
        if len(head) < RECORD.size:
            return head[: len(expected)] == expected[: len(head)]
        length = self._length_at(at)
        is_cut = length is not None and at + RECORD.size + length > len(self._data)
        return is_cut and head.startswith(expected)


class _OldReader(_Reader):
    """Reads records of earlier versions, which have no marker and no number."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data, b"")
        self._start = _OLD_RECORD_TAG
        self._budget = (_OLD_SEARCH_FACTOR + 1) * len(data)

    def _next(self, at: int) -> int:
        return -1 if self._budget < 0 else super()._next(at)

    def _body_at(self, at: int) -> Span | None:
        length = self._length_at(at)
        begin = at + _OLD_RECORD.size
        if not length or begin + length > len(self._data):
            return None
        self._budget -= length
        (checksum,) = _LENGTH.unpack_from(self._data, begin - 4)
        is_intact = checksum == isal_zlib.crc32(
            self._view[begin : begin + length], _checksum(_LENGTH.pack(length))
        )
        return (begin, begin + length) if is_intact else None

    def _length_at(self, at: int) -> int | None:
        if at + _OLD_RECORD.size > len(self._data):
            return None
        tag, length, _ = _OLD_RECORD.unpack_from(self._data, at)
        return int(length) if tag == _OLD_RECORD_TAG else None

    def _number_at(self, at: int, count: int) -> int:
        return count

    def _is_torn(self, at: int, seen: set[int]) -> bool:
        length = self._length_at(at)
        if length is None:
            head = self._data[at:]
            return len(head) < _OLD_RECORD.size and head[:2] == _OLD_RECORD_TAG[: len(head)]
        return at + _OLD_RECORD.size + length > len(self._data)


def _checksum(data: bytes | memoryview) -> int:
    return int(isal_zlib.crc32(data))
