"""The cache itself: looks answers up, keeps them, deletes them, and survives its backend."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from time import time
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from evenkeel.embedding import MAX_TOKENS, Encoder
from runtime.response_cache.agreement import say_the_same
from runtime.response_cache.audit import AuditLog
from runtime.response_cache.backend import Backend, BackendError, Size
from runtime.response_cache.counts import CacheCounts
from runtime.response_cache.entry import CacheEntry, CorruptEntryError, decode_entry, encode_entry
from runtime.response_cache.neighbours import Neighbour, Neighbours
from runtime.response_cache.policy import CachePolicy, RoutePolicy
from runtime.response_cache.question import Question, subject_tag, tenant_tag
from runtime.response_cache.serve_control import ControlChange, ServeControl
from runtime.response_cache.text_guards import find_difference

logger = logging.getLogger(__name__)

Vector = NDArray[np.float32]
T = TypeVar("T")

# Near questions looked at, in case a guard refuses the nearest.
_NUM_NEIGHBOURS = 4
_NUM_NEAR_MISSES = 200


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


class ResponseCache:
    """Everything of the cache but the engine; belongs to the server's event loop.

    Args:
        policy: What it may do.
        backend: Where entries are.
        encoder: Of questions; None where no route compares meanings.
        audit: Where changes are recorded.
        clock: Unix time in seconds.
    """

    def __init__(
        self,
        policy: CachePolicy,
        backend: Backend,
        encoder: Encoder | None,
        audit: AuditLog,
        clock: Callable[[], float] = time,
    ) -> None:
        self.policy = policy
        self.counts = CacheCounts()
        self.audit = audit
        self.near_misses: deque[NearMiss] = deque(maxlen=_NUM_NEAR_MISSES)
        self.controls: dict[str, ServeControl] = {}
        self.index = Neighbours()
        self._backend = backend
        self._encoder = encoder
        self._clock = clock
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="cache-embedding")
        self._is_failing = False
        self._has_warned_of_corruption = False

    def control(self, policy: RoutePolicy) -> ServeControl:
        """Return the evidence of a route."""
        control = self.controls.get(policy.route)
        if control is None:
            control = self.controls[policy.route] = ServeControl(policy)
        return control

    async def encode(self, question: Question) -> Vector | None:
        """Return a question's embedding; None where it is not comparable."""
        if self._encoder is None or not question.is_comparable:
            return None
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._encode_whole, question.text)

    def _encode_whole(self, text: str) -> Vector | None:
        assert self._encoder is not None
        # The rest of a longer text would not be compared at all.
        if self._encoder.num_tokens(text) >= MAX_TOKENS:
            return None
        return self._encoder.encode(text)

    async def find_exact(self, question: Question) -> CacheEntry | None:
        """Return the answer to exactly this request."""
        found = await self._fetch([question.id])
        return found.get(question.id)

    async def find_near(self, question: Question, vector: Vector) -> NearHit | None:
        """Return the nearest answer that may be served, else the nearest there is.

        Nothing below the route's `draft_similarity` is returned.
        """
        least = question.policy.draft_similarity
        near = [
            neighbour
            for neighbour in self.index.search(question.scope, vector, _NUM_NEIGHBOURS)
            if neighbour.similarity >= least and neighbour.entry_id != question.id
        ]
        entries = await self._fetch([neighbour.entry_id for neighbour in near])
        hits = [
            self._judge(question, n, entries[n.entry_id]) for n in near if n.entry_id in entries
        ]
        return next((hit for hit in hits if hit.refused_by is None), hits[0] if hits else None)

    def _judge(self, question: Question, near: Neighbour, entry: CacheEntry) -> NearHit:
        return NearHit(entry, near.similarity, find_difference(question.text, entry.question))

    def note_near_miss(self, question: Question, near: NearHit) -> NearMiss | None:
        """Remember a near hit that only a guard kept from being a candidate."""
        control = self.control(question.policy)
        if near.refused_by is None or not control.is_candidate(near.similarity):
            return None
        self.counts.refused[near.refused_by] += 1
        shows = self.policy.shows_texts
        miss = NearMiss(
            at_s=self._clock(),
            route=question.policy.route,
            similarity=near.similarity,
            refused_by=near.refused_by,
            entry_id=near.entry.id,
            question=question.text if shows else None,
            other=near.entry.question if shows else None,
        )
        self.near_misses.append(miss)
        return miss

    async def say_the_same(self, answer: str, other: str) -> bool:
        """Whether two answers could stand for each other."""
        encode = self._encoder.encode if self._encoder is not None else None
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, say_the_same, answer, other, encode)

    def note_verdict(
        self, question: Question, near: NearHit, is_same: bool
    ) -> ControlChange | None:
        """Take the model's own word on a near hit; returns what is served differently from now."""
        self.counts.verdicts["semantic", "same" if is_same else "different"] += 1
        change = self.control(question.policy).note(near.similarity, not is_same)
        if change is not None:
            self.counts.changes[change.reason] += 1
            logger.info("cache route %s: %s", change.route, change.describe())
            self.audit.write(
                "control",
                route=change.route,
                before=change.before,
                after=change.after,
                reason=change.reason,
                bound=change.bound,
                limit=change.limit,
                seen=change.seen,
                wrong=change.wrong,
            )
        return change

    async def keep(self, question: Question, entry: CacheEntry, vector: Vector | None) -> bool:
        """Store an answer; whether it is kept."""
        entry = replace(entry, expires_at_s=self._clock() + question.ttl_s)
        if vector is not None and entry.finish_reason == "stop":
            entry = replace(entry, vector=vector.astype(np.float16).tobytes())
        data = encode_entry(entry)
        if len(data) > self.policy.max_entry_bytes:
            self.counts.not_kept["too_large"] += 1
            return False
        write = self._backend.write(entry.id, data, question.ttl_s, question.tags)
        evicted = await self._guard(write, None)
        if evicted is None:
            return False
        if entry.vector and vector is not None:
            self.index.add(entry.id, entry.scope, vector)
        for entry_id in evicted:
            self.index.remove(entry_id)
        self.counts.stored += 1
        return entry.id not in evicted

    async def delete_subject(self, tenant: str, subject: str) -> int:
        """Delete all answers to one person's requests; returns how many.

        Raises:
            BackendError: If the backend does not answer; nothing may have been deleted.
        """
        return await self._delete_tagged("subject", subject_tag(tenant, subject))

    async def delete_tenant(self, tenant: str) -> int:
        """Delete all answers of a tenant; returns how many.

        Raises:
            BackendError: If the backend does not answer; nothing may have been deleted.
        """
        return await self._delete_tagged("tenant", tenant_tag(tenant))

    async def _delete_tagged(self, kind: str, tag: str) -> int:
        ids = await self._backend.find_tagged(tag)
        num_deleted = await self._backend.delete(ids)
        for entry_id in ids:
            self.index.remove(entry_id)
        self.counts.deleted += num_deleted
        # The hash, not the person: the log outlives what was deleted.
        self.audit.write("deleted", kind=kind, tag=tag, entries=num_deleted)
        return num_deleted

    async def follow_others(self) -> None:
        """Take over what other runtimes changed in a shared backend."""
        changes = await self._guard(self._backend.read_changes(), None)
        if changes is None:
            return
        if changes.is_complete:
            self.index.clear()
        for entry_id in changes.removed:
            self.index.remove(entry_id)
        new = [entry_id for entry_id in changes.added if entry_id not in self.index]
        for start in range(0, len(new), 200):
            for entry in (await self._fetch(new[start : start + 200])).values():
                if entry.vector:
                    vector = np.frombuffer(entry.vector, np.float16).astype(np.float32)
                    self.index.add(entry.id, entry.scope, vector)

    async def measure(self) -> Size | None:
        """Return what the backend holds; None where it does not answer."""
        return await self._guard(self._backend.measure(), None)

    async def close(self) -> None:
        """Let go of threads and connections."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        await self._backend.close()

    async def _fetch(self, entry_ids: Sequence[str]) -> dict[str, CacheEntry]:
        """Return the entries that live; the others leave the index."""
        if not entry_ids:
            return {}
        found = await self._guard(self._backend.read(entry_ids), None)
        if found is None:
            return {}
        entries = {}
        for entry_id, data in zip(entry_ids, found, strict=True):
            entry = None if data is None else await self._decode(data, entry_id)
            if entry is None or entry.expires_at_s <= self._clock():
                self.index.remove(entry_id)
            else:
                entries[entry_id] = entry
        return entries

    async def _decode(self, data: bytes, entry_id: str) -> CacheEntry | None:
        try:
            return decode_entry(data, entry_id)
        except CorruptEntryError as error:
            self.counts.errors["corrupt_entry"] += 1
            if not self._has_warned_of_corruption:
                self._has_warned_of_corruption = True
                logger.warning(
                    "the cache holds what is no entry, it is deleted and the model answers; "
                    "later ones are only counted: %s",
                    error,
                )
            await self._guard(self._backend.delete([entry_id]), 0)
            return None

    async def _guard(self, asked: Awaitable[T], otherwise: T) -> T:
        """Ask the backend; where it does not answer, count it and say so once."""
        try:
            answer = await asked
        except BackendError as error:
            self.counts.errors["backend"] += 1
            if not self._is_failing:
                self._is_failing = True
                logger.warning("the cache does not answer, the model does: %s", error)
            return otherwise
        if self._is_failing:
            self._is_failing = False
            logger.warning("the cache answers again")
        return answer
