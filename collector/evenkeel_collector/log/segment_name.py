"""The name of a log segment: its identity everywhere, and its deduplication token in the store."""

from __future__ import annotations

import re
from hashlib import blake2b

MARKER_BYTES = 8
_TIME_IN_NAME = re.compile(r"\d{20}")


def make_name(created_ns: int, node: str) -> str:
    """Return the name of a new segment, unique among all collectors of a store.

    Args:
        created_ns: When it is started, Unix nanoseconds.
        node: The collector's ID, made once for its data folder.
    """
    return f"{created_ns:020d}-{node}"


def marker_of(name: str) -> bytes:
    """Return the marker in the records of a segment and of its pieces."""
    return blake2b(name.partition(".")[0].encode(), digest_size=MARKER_BYTES).digest()


def time_of(name: str) -> int | None:
    """Return when a segment was started, from its name."""
    match = _TIME_IN_NAME.match(name)
    return int(match[0]) if match else None
