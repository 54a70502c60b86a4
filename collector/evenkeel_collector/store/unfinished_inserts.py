"""Makes an embedded store forget inserts that a kill cut off, so that they are not taken for done.

The engine notes a part in the deduplication log of its table, and only then names the part. Killed
in between, it has the note and not the part: the segment is sent again, is taken for a repetition,
and is lost. So before the engine is opened, notes of parts that are not there are taken back.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

_ADDED, _DROPPED = b"1", b"2"
_PART = re.compile(r"(?P<partition>[^_]+)_(?P<first>\d+)_(?P<last>\d+)_\d+(_\d+)?")
_LOG = re.compile(r"deduplication_log_(\d+)\.txt")


@dataclass(frozen=True, slots=True)
class _Blocks:
    """What a part holds: the blocks of a partition from one number to another."""

    partition: str
    first: int
    last: int

    def holds(self, other: _Blocks) -> bool:
        return (
            self.partition == other.partition
            and self.first <= other.first
            and other.last <= self.last
        )


def forget_unfinished_inserts(store: Path) -> int:
    """Take back, in every table's deduplication log, the notes of parts that are not there.

    Args:
        store: The folder of an engine that does not run.

    Returns:
        How many notes; those of parts that a retention removed are among them, which does nothing.

    Raises:
        OSError: If a log cannot be read or written.
    """
    return sum(map(_mend_table, sorted(store.glob("store/*/*/deduplication_logs"))))


def _mend_table(folder: Path) -> int:
    numbered = [
        (int(match[1]), path) for path in folder.iterdir() if (match := _LOG.fullmatch(path.name))
    ]
    if not numbered:
        return 0
    notes: dict[bytes, bytes] = {}
    for _, path in sorted(numbered):
        for line in _whole_lines(path):
            fields = line.split(b"\t")
            if len(fields) != 3:
                logger.error("deduplication log damaged, a line is passed over file=%s", path)
                continue
            operation, part, block = fields
            if operation == _ADDED:
                notes[block] = part
            else:
                notes.pop(block, None)
    there = [blocks for path in folder.parent.iterdir() if (blocks := _blocks_of(path.name))]
    unfinished = list(_without_part(notes, there))
    if unfinished:
        _, newest = max(numbered)
        with newest.open("ab") as log:
            for part, block in unfinished:
                log.write(b"\t".join((_DROPPED, part, block)) + b"\n")
        logger.warning(
            "inserts were cut off, their segments are stored again table=%s parts=%d",
            folder.parent.name, len(unfinished),
        )  # fmt: skip
    return len(unfinished)


def _whole_lines(path: Path) -> list[bytes]:
    """Return the lines; a last one that a kill tore is cut off, its part was never named."""
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        with path.open("r+b") as log:
            log.truncate(end)
    return data[:end].splitlines()


def _without_part(notes: dict[bytes, bytes], there: list[_Blocks]) -> Iterable[tuple[bytes, bytes]]:
    for block, part in notes.items():
        noted = _blocks_of(part.decode(errors="replace"))
        if noted is not None and not any(blocks.holds(noted) for blocks in there):
            yield part, block


def _blocks_of(name: str) -> _Blocks | None:
    match = _PART.fullmatch(name)
    if match is None:
        return None
    return _Blocks(match["partition"], int(match["first"]), int(match["last"]))
