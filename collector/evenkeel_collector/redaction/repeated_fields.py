"""Removes elements of a protobuf repeated field in linear time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Deleting an element moves all later ones: to delete many, the list is rebuilt instead.
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
