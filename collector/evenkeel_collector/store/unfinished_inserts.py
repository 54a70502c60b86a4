"""Removes the deduplication entries of inserts that a kill interrupted.

The engine records a part in its table's deduplication log before it names the part. Killed in
between, it has the entry but not the part: the segment is sent again, treated as a duplicate, and
lost. So before the engine is opened, entries of missing parts are removed.
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
    """The contents of a part: a range of block numbers of a partition."""

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
    """Remove the entries of missing parts from every table's deduplication log.

    Args:
        store: The folder of an engine that is not running.

    Returns:
        The number of entries, including those of parts removed by retention, which is harmless.

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
                logger.error("deduplication log damaged, skipping a line file=%s", path)
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
            "interrupted inserts found, storing their segments again table=%s parts=%d",
            folder.parent.name, len(unfinished),
        )  # fmt: skip
    return len(unfinished)


def _whole_lines(path: Path) -> list[bytes]:
    """Return the lines without a torn last one, whose part was never named."""
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
