"""Removes elements of a protobuf repeated field in time that does not grow with its square."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Deleting one element moves those behind it: of many, the others are kept instead.
MAX_DELETIONS = 8


def remove(repeated: Any, indexes: Sequence[int]) -> None:
    """Remove the elements at ascending `indexes` in place; the others keep their order."""
    if len(indexes) > MAX_DELETIONS:
        gone = set(indexes)
        kept = [item for index, item in enumerate(repeated) if index not in gone]
        del repeated[:]
        repeated.extend(kept)
    else:
        for index in reversed(indexes):
            del repeated[index]
