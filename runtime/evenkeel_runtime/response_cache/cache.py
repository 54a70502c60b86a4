"""The cache: look up, store and delete answers, and tolerate backend failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import time

import numpy as np

from evenkeel.embedding import Encoder
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.backend import Backend, Size
from evenkeel_runtime.response_cache.counts import CacheCounts
from evenkeel_runtime.response_cache.deletions import Deletions
from evenkeel_runtime.response_cache.embedder import Embedder, Vector
from evenkeel_runtime.response_cache.entry import CacheEntry, encode_entry
from evenkeel_runtime.response_cache.hit_class import (
    HARD_GUARDS,
    NearHit,
    NearQuestion,
    judge,
)
from evenkeel_runtime.response_cache.near_hit_rule import is_promising
from evenkeel_runtime.response_cache.near_misses import NearMiss, NearMisses
from evenkeel_runtime.response_cache.neighbours import (
    Nearness,
    Neighbour,
    Neighbours,
    Sketch,
    list_candidates,
)
from evenkeel_runtime.response_cache.other_runtimes import OtherRuntimes
from evenkeel_runtime.response_cache.question import Question
from evenkeel_runtime.response_cache.route_evidence import Controls
from evenkeel_runtime.response_cache.route_modes import RouteModes
from evenkeel_runtime.response_cache.serve_control import ControlChange, ServeControl
from evenkeel_runtime.response_cache.settings_file import CachePolicy, RoutePolicy
from evenkeel_runtime.response_cache.stored_entries import StoredEntries
from evenkeel_runtime.response_cache.worker import Worker
from evenkeel_runtime.text.agreement import are_interchangeable

# Maximum candidates embedded per lookup: a few are usually enough, and each uses up part of the
# time limit. Their embeddings are kept.
_NUM_NEW = 2
# Nearest questions whose answers are considered, and questions per answer that guards compare.
_NUM_NEIGHBOURS = 4
# Static cosine from which an answer may become a draft, and different answers passed on.
_LEAST_DRAFT_SIMILARITY = 0.25
_NUM_DRAFTS = 8
# Maximum queued comparisons of answers.
_MAX_COMPARISONS = 16
_COMPARISON_STUCK_S = 10.0
_COMPARISON_PAUSE_S = 0.05


class ResponseCache:
    """The cache without the engine; runs on the server's event loop.

    Args:
        policy: The cache policy.
        backend: Storage of the entries.
        encoder: Encodes questions; None if no route compares meanings.
        audit: The audit log.
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
        self.needs_restart: tuple[str, ...] = ()
        self.counts = CacheCounts()
        self.audit = audit
        self.modes = RouteModes(policy, audit)
        self.near_misses = NearMisses()
        self.controls = Controls(self.counts, audit, clock)
        self.index = Neighbours()
        self._backend = backend
        self._entries = StoredEntries(backend, self.index, self.counts, clock)
        self._others = OtherRuntimes(self._entries, self.index, encoder)
        self.deletions = Deletions(self._entries, self.index, self.near_misses, self.counts, audit)
        self._encoder = encoder
        self._clock = clock
        self._embedder = (
            None if encoder is None else Embedder(encoder.encode, policy.embedding_timeout_s)
        )
        self._comparer = Worker("cache-comparison", _MAX_COMPARISONS, _COMPARISON_STUCK_S)

    @property
    def has_encoder(self) -> bool:
        """Whether questions in other words can be compared."""
        return self._encoder is not None

    def configure(self, policy: CachePolicy) -> None:
        """Apply a changed file; the backend and the encoder stay as they are."""
        self.policy = policy
        if not policy.shows_texts:
            self.near_misses.hide_texts()
        self.modes.configure(policy)
        self.controls.configure(policy)

    def control(self, policy: RoutePolicy) -> ServeControl:
        """Return the evidence of a route."""
        return self.controls.find(policy)

    def sketch(self, question: Question) -> Vector | None:
        """Return a question's static vector; None if it is too long, or not to be compared."""
        encoder = self._encoder if question.is_comparable else None
        return None if encoder is None else encoder.sketch(question.text)

    def search(self, question: Question, sketch: Sketch | None = None) -> list[Neighbour]:
        """Return the cached questions that are nearest by static vectors, nearest first."""
        if not self.index.has_scope(question.scope):
            return []
        vector = self.sketch(question) if sketch is None else sketch()
        if vector is None:
            return []
        found = self.index.search(question.scope, vector)
        return [n for n in found if n.entry_id != question.id]

    async def find_exact(self, question: Question) -> CacheEntry | None:
        """Return the answer to exactly this request, if cached."""
        return (await self._fetch([question.id])).get(question.id)

    async def find_near(self, question: Question, nearest: Sequence[Neighbour]) -> Nearness:
        """Return the nearest answer that may be served, else the nearest of all.

        Answers below the route's `draft_similarity` are not returned, and nothing is embedded
        unless static vectors suggest a near question.

        Args:
            question: The question.
            nearest: The nearest by static vectors, as `search` returns them.
        """
        candidates = list_candidates(nearest)
        if not candidates or self._embedder is None:
            return self._record_embedding(Nearness(None, None, "nothing_near"))
        unknown = [c for c in candidates if self.index.find_embedding(c) is None][:_NUM_NEW]
        new = await self._fetch(unknown)
        texts = [question.text, *(entry.question for entry in new.values())]
        embedded = await self._embedder.embed(texts)
        for entry_id, vector in zip(new, embedded.vectors[1:], strict=False):
            self.index.learn(entry_id, vector)
        if not embedded.vectors:
            return self._record_embedding(Nearness(None, None, embedded.outcome))
        vector = embedded.vectors[0]
        hit = await self.find_nearest(question, vector, candidates)
        if hit is not None and is_promising(hit, self.control(question.policy)):
            self._embedder.budget.record_find(embedded.cost_s)
        return self._record_embedding(Nearness(hit, vector, embedded.outcome))

    async def find_drafts(self, nearest: Sequence[Neighbour]) -> list[tuple[Neighbour, CacheEntry]]:
        """Return entries with different answers to draft from, nearest first.

        They are near by static vectors: nothing is embedded, because the model verifies a draft.

        Args:
            nearest: The nearest by static vectors, as `search` returns them.
        """
        by_answer: dict[int, Neighbour] = {}
        for n in nearest:
            if n.similarity >= _LEAST_DRAFT_SIMILARITY:
                by_answer.setdefault(self.index.find_known(n.entry_id).answer, n)
        near = list(by_answer.values())[:_NUM_DRAFTS]
        entries = await self._fetch([n.entry_id for n in near])
        return [(n, entries[n.entry_id]) for n in near if n.entry_id in entries]

    async def find_nearest(
        self, question: Question, vector: Vector, candidates: Sequence[str]
    ) -> NearHit | None:
        """Return the best candidate whose embedding is known and near enough."""
        near = []
        for entry_id in candidates:
            other = self.index.find_embedding(entry_id)
            if other is not None:
                known = self.index.find_known(entry_id)
                near.append(NearQuestion(entry_id, float(vector @ other), known))
        near.sort(key=lambda neighbour: -neighbour.similarity)
        nearest = [n for n in near if n.similarity >= question.policy.draft_similarity]
        by_answer: dict[int, list[str]] = {}
        for item in nearest[:_NUM_NEIGHBOURS]:
            by_answer[item.known.answer] = []
        for item in nearest:
            ids = by_answer.get(item.known.answer)
            if ids is not None and len(ids) < _NUM_NEIGHBOURS:
                ids.append(item.entry_id)
        entries = await self._fetch([entry_id for ids in by_answer.values() for entry_id in ids])
        near = [n for n in near if n.entry_id in self.index]
        found = [
            (answer, [entries[i] for i in ids if i in entries]) for answer, ids in by_answer.items()
        ]
        first: NearHit | None = None
        for answer, same in found:
            if same:
                hit = judge(question, near, answer, same)
                if hit.refused_by not in HARD_GUARDS:
                    return hit
                first = first or hit
        return first

    def _record_embedding(self, found: Nearness) -> Nearness:
        self.counts.embeddings[found.outcome] += 1
        return found

    def record_near_miss(self, question: Question, near: NearHit) -> NearMiss | None:
        """Record a near hit that a guard objects to and that is not served."""
        control = self.control(question.policy)
        if near.refused_by is None or not control.is_candidate(near.hit_class):
            return None
        self.counts.refused[near.refused_by] += 1
        shows = self.policy.shows_texts
        miss = NearMiss(
            at_s=self._clock(),
            route=question.policy.route,
            similarity=near.similarity,
            lead=near.hit_class.lead,
            kind=near.hit_class.kind,
            refused_by=near.refused_by,
            entry_id=near.entry.id,
            question=question.text if shows else None,
            other=near.entry.question if shows else None,
        )
        self.near_misses.add(miss, [*question.tags, *near.entry.subjects])
        return miss

    async def compare_answers(self, answer: str, other: str, tries: int = 1) -> bool | None:
        """Return whether two answers are interchangeable; None if the comparison queue is full.

        A comparison is dropped before it starts. Dropping slow ones later would bias the evidence,
        because the slow comparisons are those of answers that differ.
        """
        encode = self._encoder.encode if self._encoder is not None else None
        for left in reversed(range(tries)):
            verdict = self._comparer.submit(lambda: are_interchangeable(answer, other, encode))
            if verdict is not None:
                return await verdict
            if left:
                await asyncio.sleep(_COMPARISON_PAUSE_S)
        self.counts.embeddings["comparison_dropped"] += 1
        return None

    def record_verdict(
        self, question: Question, near: NearHit, is_same: bool, replayed_at: float | None = None
    ) -> ControlChange | None:
        """Record the model's verdict on a near hit; return the change in serving, if any.

        Args:
            question: The question.
            near: The near hit.
            is_same: Whether the model gave the same answer.
            replayed_at: For a hit that was served, the share at which it was replayed.
        """
        self.counts.verdicts["semantic", "same" if is_same else "different"] += 1
        return self.controls.record(question.policy, near.hit_class, not is_same, replayed_at)

    async def keep(
        self,
        question: Question,
        entry: CacheEntry,
        vector: Vector | None = None,
        sketch: Sketch | None = None,
    ) -> bool:
        """Store an answer, with its question's embedding if any; return whether it was stored."""
        sketch = sketch or (lambda: self.sketch(question))
        static = sketch() if entry.finish_reason == "stop" else None
        entry = replace(
            entry,
            expires_at_s=self._clock() + question.ttl_s,
            is_comparable=static is not None,
            vector=b"" if vector is None else vector.astype(np.float16).tobytes(),
        )
        data = encode_entry(entry)
        if len(data) > self.policy.max_entry_bytes:
            self.counts.not_kept["too_large"] += 1
            return False
        if self.deletions.is_behind:
            self.counts.not_kept["deletions_pending"] += 1
            return False
        num_deletions = self.deletions.count
        write = self._backend.write(entry.id, data, question.ttl_s, question.tags)
        evicted = await self._entries.call(write, None)
        if num_deletions != self.deletions.count:
            # It may have listed the entries before this one was there. A write that failed may
            # have been applied all the same: only its reply was late.
            await self.deletions.undo(entry.id)
            self.counts.not_kept["deleted_meanwhile"] += 1
            return False
        if evicted is None:
            return False
        self._entries.unremoved.pop(entry.id, None)
        for entry_id in evicted:
            self.index.remove(entry_id)
        if entry.id in evicted:
            self.counts.not_kept["too_large"] += 1
            return False
        if static is not None:
            self.index.add_entry(entry, static)
        self.counts.stored += 1
        return True

    async def follow_others(self) -> None:
        """Apply the changes by other runtimes, and remove what deletions had to leave."""
        await self.deletions.remove_left()
        await self._others.follow()

    async def measure(self) -> Size | None:
        """Return the backend's size; None if it does not respond."""
        return await self._entries.call(self._backend.measure(), None)

    async def close(self) -> None:
        """Save the evidence, stop threads and close connections."""
        self.controls.save()
        self._comparer.close()
        if self._embedder is not None:
            self._embedder.close()
        await self._backend.close()

    async def _fetch(self, entry_ids: Sequence[str]) -> dict[str, CacheEntry]:
        return await self._entries.fetch(entry_ids) or {}
