"""The latest near misses, for review; they may show texts, so deletions apply to them, too."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_NUM_KEPT = 200


@dataclass(slots=True)
class NearMiss:
    """A near hit that a guard objects to and that was not served, for human review.

    Attributes:
        at_s: When, Unix time.
        route: The route in the cache file.
        similarity: Cosine of the two questions.
        lead: By how much it is nearer than the nearest question with another answer.
        kind: The kind of its class (hit_class.py).
        refused_by: The guard that objects.
        entry_id: The stored answer.
        question: The question; null without `shows_texts`.
        other: The question of the stored answer, likewise.
        was_same: Whether the model then gave the same answer, so the guard was too strict.
    """

    at_s: float
    route: str
    similarity: float
    lead: float
    kind: str
    refused_by: str
    entry_id: str
    question: str | None
    other: str | None
    was_same: bool | None = None


class NearMisses:
    """The latest near misses, oldest first."""

    def __init__(self) -> None:
        self._kept: deque[tuple[NearMiss, frozenset[str]]] = deque(maxlen=_NUM_KEPT)

    def __iter__(self) -> Iterator[NearMiss]:
        return (miss for miss, _ in self._kept)

    def add(self, miss: NearMiss, tags: Collection[str]) -> None:
        """Add one, with the tags of both questions, by which deletions find it."""
        self._kept.append((miss, frozenset(tags)))

    def delete(self, tag: str | None) -> None:
        """Delete those with a tag; all if it is None."""
        left = [] if tag is None else [each for each in self._kept if tag not in each[1]]
        self._kept = deque(left, _NUM_KEPT)

    def hide_texts(self) -> None:
        """Remove the texts."""
        for miss in self:
            miss.question = miss.other = None
