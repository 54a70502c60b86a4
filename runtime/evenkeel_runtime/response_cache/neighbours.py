"""The index of cached questions by scope, and lookup results for near questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenkeel.embedding import DIMENSIONS
from evenkeel_runtime.response_cache.embedder import Vector
from evenkeel_runtime.response_cache.entry import CacheEntry
from evenkeel_runtime.response_cache.hit_class import KnownQuestion, NearHit, know

# Returns a question's static vector; None if it has none.
Sketch = Callable[[], Vector | None]
# How many of the nearest questions by static vectors are looked at, and the static cosine below
# which two hardly ever have an embedding cosine of 0.6 (bench/cache.py --only recall).
NUM_CANDIDATES = 32
LEAST_SKETCH_SIMILARITY = 0.4
# Below this size a full scan is faster than a graph, and any graph takes at least 16 MB.
GRAPH_FROM = 6000
# Vectors that move into the graph with each new one: all at once would stop the server.
_MOVED_AT_ONCE = 2
# HNSW: links per node, and candidates kept while adding and while searching.
_CONNECTIVITY = 16
_EXPANSION_ADD = 96
_EXPANSION_SEARCH = 128


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A cached question, and the cosine of its static vector with that of the new question."""

    entry_id: str
    similarity: float


@dataclass(frozen=True, slots=True)
class Nearness:
    """The result of a neighbour search.

    Attributes:
        hit: The best neighbour; None if nothing is near, or it could not be determined.
        vector: The question's embedding, if computed.
        outcome: `nothing_near`, `done`, or why there is no embedding (docs/guide/cache.md).
    """

    hit: NearHit | None
    vector: Vector | None
    outcome: str


class Neighbours:
    """The index of all scopes, and the embeddings known so far; vectors have unit length."""

    def __init__(self) -> None:
        self._embeddings: dict[str, NDArray[np.float16]] = {}
        self._scopes: dict[str, _List | _Graph] = {}
        self._scope_of: dict[str, str] = {}
        self._known: dict[str, KnownQuestion] = {}

    def __len__(self) -> int:
        return len(self._scope_of)

    def __contains__(self, entry_id: str) -> bool:
        return entry_id in self._scope_of

    def has_scope(self, scope: str) -> bool:
        """Whether this scope has any questions."""
        return scope in self._scopes

    def add(
        self, entry_id: str, scope: str, vector: Vector, known: KnownQuestion | None = None
    ) -> None:
        """Add a question by its static vector, replacing any entry with its id."""
        self.remove(entry_id)
        if known is not None:
            self._known[entry_id] = known
        space = self._scopes.get(scope)
        if space is None:
            space = self._scopes[scope] = _List()
        elif isinstance(space, _List) and len(space) >= GRAPH_FROM:
            space = self._scopes[scope] = _Graph(space)
        space.add(entry_id, vector)
        self._scope_of[entry_id] = scope

    def add_entry(self, entry: CacheEntry, vector: Vector) -> None:
        """Add the question of an entry, with its embedding if that is known."""
        self.add(entry.id, entry.scope, vector, know(entry))
        if entry.vector:
            self.learn(entry.id, np.frombuffer(entry.vector, np.float16).astype(np.float32))

    def learn(self, entry_id: str, embedding: Vector) -> None:
        """Store the embedding of a question; unknown questions are ignored."""
        if entry_id in self._scope_of:
            self._embeddings[entry_id] = embedding.astype(np.float16)

    def find_embedding(self, entry_id: str) -> Vector | None:
        """Return the embedding of a question; None if it is not known yet."""
        known = self._embeddings.get(entry_id)
        return None if known is None else known.astype(np.float32)

    def find_known(self, entry_id: str) -> KnownQuestion:
        """Return what is known of a question; an answer of its own if nothing is."""
        return self._known.get(entry_id) or KnownQuestion(hash(entry_id), ())

    def remove(self, entry_id: str) -> None:
        """Remove a question; unknown questions are ignored."""
        scope = self._scope_of.pop(entry_id, None)
        if scope is None:
            return
        self._known.pop(entry_id, None)
        self._embeddings.pop(entry_id, None)
        space = self._scopes[scope]
        space.remove(entry_id)
        if not len(space):
            del self._scopes[scope]

    def list_others(self, entry_ids: Iterable[str]) -> list[str]:
        """Return the ids of the questions that are none of these."""
        return list(self._scope_of.keys() - set(entry_ids))

    def search(self, scope: str, vector: Vector, count: int = NUM_CANDIDATES) -> list[Neighbour]:
        """Return the nearest questions of a scope, nearest first."""
        space = self._scopes.get(scope)
        return [] if space is None else space.search(vector, count)


def list_candidates(nearest: Sequence[Neighbour]) -> list[str]:
    """Return those of the nearest whose embeddings are worth comparing."""
    return [n.entry_id for n in nearest if n.similarity >= LEAST_SKETCH_SIMILARITY]


class _List:
    """A few vectors, scanned in full."""

    __slots__ = ("_place", "ids", "rows")

    def __init__(self) -> None:
        self.ids: list[str] = []
        # Each turn of a conversation has a scope of its own, most often with one question.
        self.rows: Vector = np.empty((1, DIMENSIONS), dtype=np.float32)
        self._place: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, entry_id: str, vector: Vector) -> None:
        size = len(self.ids)
        if size == len(self.rows):
            self.rows = np.concatenate([self.rows, np.empty_like(self.rows)])
        self.rows[size] = vector
        self._place[entry_id] = size
        self.ids.append(entry_id)

    def remove(self, entry_id: str) -> None:
        place, last = self._place.pop(entry_id), self.ids.pop()
        if last != entry_id:
            self.ids[place] = last
            self.rows[place] = self.rows[len(self.ids)]
            self._place[last] = place
        if not self.ids:
            # Once all are in a graph, the rows would take 12 MB for nothing.
            self.rows = self.rows[:1].copy()

    def pop(self) -> tuple[str, Vector]:
        entry_id = self.ids[-1]
        vector = self.rows[len(self.ids) - 1]
        self.remove(entry_id)
        return entry_id, vector

    def search(self, vector: Vector, count: int) -> list[Neighbour]:
        cosines = self.rows[: len(self.ids)] @ vector
        nearest = np.arange(len(cosines))
        if len(cosines) > count:
            nearest = np.argpartition(-cosines, count - 1)[:count]
        nearest = nearest[np.lexsort((nearest, -cosines[nearest]))]
        pairs = zip(nearest.tolist(), cosines[nearest].tolist(), strict=True)
        return [Neighbour(self.ids[place], cosine) for place, cosine in pairs]


class _Graph:
    """Many vectors in a usearch HNSW graph, and the list of those that still have to move there."""

    def __init__(self, rest: _List) -> None:
        from usearch.index import Index

        self._rest = rest
        self._index: Any = Index(
            ndim=DIMENSIONS,
            metric="ip",
            dtype="f16",
            connectivity=_CONNECTIVITY,
            expansion_add=_EXPANSION_ADD,
            expansion_search=_EXPANSION_SEARCH,
        )
        self._key_of: dict[str, int] = {}
        self._id_of: dict[int, str] = {}
        self._next_key = 0

    def __len__(self) -> int:
        return len(self._key_of) + len(self._rest)

    def add(self, entry_id: str, vector: Vector) -> None:
        self._put(entry_id, vector)
        for _ in range(min(_MOVED_AT_ONCE, len(self._rest))):
            self._put(*self._rest.pop())

    def _put(self, entry_id: str, vector: Vector) -> None:
        key = self._next_key
        self._next_key += 1
        self._key_of[entry_id] = key
        self._id_of[key] = entry_id
        self._index.add(key, vector)

    def remove(self, entry_id: str) -> None:
        key = self._key_of.pop(entry_id, None)
        if key is None:
            self._rest.remove(entry_id)
        else:
            del self._id_of[key]
            self._index.remove(key)

    def search(self, vector: Vector, count: int) -> list[Neighbour]:
        nearest = self._rest.search(vector, count)
        if self._key_of:
            found = self._index.search(vector, count)
            pairs = zip(found.keys.tolist(), found.distances.tolist(), strict=True)
            nearest += [Neighbour(self._id_of[k], 1.0 - d) for k, d in pairs if k in self._id_of]
            nearest.sort(key=lambda neighbour: -neighbour.similarity)
        return nearest[:count]
