"""Embed questions for lookups within a time limit, a short queue and a share of a core.

An embedding takes about 12 ms of a core, which on a small machine is taken from the model.
Embeddings that find a neighbour save far more than that. The others may take `SHARE` of a core,
timed-out waits included; beyond it, questions are not embedded and the model answers
(docs/decisions/0187-embeddings-within-a-limit.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event, Lock
from time import monotonic, thread_time

import numpy as np
from numpy.typing import NDArray

from evenkeel_runtime.response_cache.worker import Worker

Vector = NDArray[np.float32]

# Share of a core for embeddings that find nothing, the maximum saved-up budget in seconds, and what
# there is of it at the start: enough to find whether anything is found.
SHARE = 0.02
SAVED_UP_S = 2.0
BEGIN_WITH_S = 0.5
# An embedding that finds a neighbour pays for this many, itself included.
PAID_BY_A_FIND = 10
# Queue length behind the running one; more would certainly be late.
_MAX_WAITING = 2


class EmbeddingBudget:
    """The CPU time budget of embeddings, in seconds; thread-safe.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._left_s = BEGIN_WITH_S
        self._at_s = clock()
        self._lock = Lock()

    def has_any(self) -> bool:
        """Whether the budget allows an embedding now."""
        with self._lock:
            now_s = self._clock()
            self._add((now_s - self._at_s) * SHARE)
            self._at_s = now_s
            return self._left_s > 0

    def spend(self, cost_s: float) -> None:
        """Charge the cost of an embedding."""
        with self._lock:
            self._left_s -= cost_s

    def record_find(self, cost_s: float) -> None:
        """Refund a lookup that found a neighbour, with a bonus for further lookups."""
        with self._lock:
            self._add(PAID_BY_A_FIND * cost_s)

    def _add(self, seconds: float) -> None:
        self._left_s = min(self._left_s + seconds, SAVED_UP_S)


@dataclass(frozen=True, slots=True)
class Embedded:
    """The result of a request for embeddings.

    Attributes:
        vectors: Embeddings of the first texts, in order, that were ready in time.
        outcome: `done`, or why some are missing: `late`, `queue_full`, `budget`.
        cost_s: CPU seconds they took.
    """

    vectors: tuple[Vector, ...]
    outcome: str
    cost_s: float = 0.0


class Embedder:
    """Embeds on a separate thread; used from the server's event loop.

    Args:
        encode: Returns a text's embedding.
        limit_s: Longest wait for an embedding.
        budget: The CPU time budget.
    """

    def __init__(
        self, encode: Callable[[str], Vector], limit_s: float, budget: EmbeddingBudget | None = None
    ) -> None:
        self.budget = budget or EmbeddingBudget()
        self._encode = encode
        self._limit_s = limit_s
        self._worker = Worker("cache-embedding", _MAX_WAITING, limit_s)

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return the embeddings of as many of the texts as are ready within the limit."""
        if not self.budget.has_any():
            return Embedded((), "budget")
        ready: list[Vector] = []
        given_up = Event()
        paid_s: list[float] = []
        job = self._worker.submit(lambda: self._work(texts, ready, given_up, paid_s))
        if job is None:
            return Embedded((), "queue_full")
        try:
            async with asyncio.timeout(self._limit_s):
                cost_s = await job
        except TimeoutError:
            # A timed-out wait costs the request the same, however little was computed.
            paid_s.append(self._limit_s)
            self.budget.spend(self._limit_s)
            return Embedded(tuple(ready), "late")
        finally:
            given_up.set()
        return Embedded(tuple(ready), "done", cost_s)

    def _work(
        self, texts: Sequence[str], ready: list[Vector], given_up: Event, paid_s: list[float]
    ) -> float:
        """Embed until done or no longer awaited; return the CPU seconds used.

        They are charged to the budget, less what was already charged for a timed-out wait.
        """
        began_s = thread_time()
        try:
            for text in texts:
                if given_up.is_set():
                    break
                ready.append(self._encode(text))
        finally:
            cost_s = thread_time() - began_s
            self.budget.spend(max(0.0, cost_s - sum(paid_s)))
        return cost_s

    def close(self) -> None:
        """Drop the queued work."""
        self._worker.close()
