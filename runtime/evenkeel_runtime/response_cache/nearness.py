"""What is known of the questions near to one, and of those that a guard refused."""

from __future__ import annotations

from dataclasses import dataclass

from evenkeel_runtime.response_cache.embedder import Vector
from evenkeel_runtime.response_cache.entry import (
    CacheEntry,
)


@dataclass(frozen=True, slots=True)
class NearHit:
    """The best entry for a question in other words.

    Attributes:
        entry: Whose question is near.
        similarity: Their cosine.
        refused_by: The guard that forbids to serve it; None where none does.
    """

    entry: CacheEntry
    similarity: float
    refused_by: str | None


@dataclass(frozen=True, slots=True)
class Nearness:
    """What is known of the neighbours of a question.

    Attributes:
        hit: The best of them; None where nothing is near, or it was not found out.
        vector: The question's embedding, where it was made.
        outcome: `nothing_near`, `done`, or why there is no embedding (docs/guide/cache.md).
    """

    hit: NearHit | None
    vector: Vector | None
    outcome: str


@dataclass(slots=True)
class NearMiss:
    """A near hit that a guard refused, for a person to look at.

    Attributes:
        was_same: Whether the model then answered the same: the guard was too strict.
    """

    at_s: float
    route: str
    similarity: float
    refused_by: str
    entry_id: str
    question: str | None
    other: str | None
    was_same: bool | None = None
