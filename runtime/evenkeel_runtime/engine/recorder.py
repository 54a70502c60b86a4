"""Reads what vLLM's scheduler decided in a step and what came back, and makes step records of it.

Everything here runs in the engine's loop, once a step or once a request in it: it reads, counts and
packs, and does nothing else. `find_missing` says beforehand what a scheduler lacks of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from time import monotonic_ns
from typing import Any

from evenkeel_runtime.engine.evictions import EvictionWatch
from evenkeel_runtime.engine.packer import (
    NOBODY_HELD,
    EngineStep,
    HeldRequests,
    Scheduled,
    StepPacker,
    pack_held,
)
from evenkeel_runtime.engine.seen_blocks import Eviction, SeenBlocks
from evenkeel_runtime.engine.sender import StepSender
from evenkeel_runtime.wire.steps import Admitted, Arrived, Held, Left

_SCHEDULER_NEEDS = (
    "requests running waiting kv_holding_waiting deferred_waiting finished_req_ids "
    "kv_cache_manager.block_pool.num_gpu_blocks kv_cache_manager.block_pool.free_block_queue "
    "kv_cache_manager.block_pool.cached_block_hash_to_block max_num_scheduled_tokens "
    "kv_cache_manager.block_pool.metrics_collector kv_cache_manager.block_pool.enable_caching "
    "max_num_active_reqs num_waiting_for_streaming_input hash_block_size block_size "
    "scheduler_config.enable_chunked_prefill scheduler_config.max_num_batched_tokens "
    "vllm_config.speculative_config parallel_config.data_parallel_index"
).split()
# Waiting requests that the scheduler set aside are named in a step, at most so many of them.
_MAX_SET_ASIDE = 64
# Plain numbers: an enum's members cost a step more than all else here.
_NOT, _BUDGET, _KV, _SEATS, _GRAMMAR, _REMOTE_KV, _OTHER = map(int, Held)
_MISSING = object()


@dataclass(slots=True)
class _Tracked:
    """A request that the scheduler has: its number, how far it came, what preemption undid."""

    number: int
    request: Any
    is_admitted: bool = False
    reached_tokens: int = 0
    lost_tokens: int = 0


class StepRecorder:
    """Turns what a scheduler did into step records.

    Args:
        scheduler: The scheduler to look at.
        sender: Where records go.
        seen_blocks: Most prefix-cache blocks to remember.
        reason_of_status: Why a request of this vLLM status is set aside; `Held.OTHER` if not in it.
    """

    def __init__(
        self,
        scheduler: Any,
        sender: StepSender,
        seen_blocks: int,
        reason_of_status: Mapping[Any, Held],
    ) -> None:
        self._scheduler = scheduler
        self._sender = sender
        self._packer = StepPacker(sender)
        self._pool = scheduler.kv_cache_manager.block_pool
        self._seen = SeenBlocks(seen_blocks)
        self._evictions = EvictionWatch(self._pool.metrics_collector)
        self._pool.metrics_collector = self._evictions
        speculation = scheduler.vllm_config.speculative_config
        self._draft_slots = getattr(speculation, "max_num_new_slots_for_drafting", 0)
        self._reason_of_status = {k: int(v) for k, v in reason_of_status.items()}
        self._tracked: dict[str, _Tracked] = {}
        self._pending: deque[EngineStep] = deque()
        # The last step that was looked at request by request, and how often it has come again.
        self._scheduled: list[Scheduled] = []
        self._tokens_again: dict[str, int] | None = None
        self._num_again = 0
        self._num_requests = 0

    def record_arrival(self, request: Any) -> None:
        """Record a request that the scheduler took in."""
        if request.request_id in self._tracked:
            return  # A further chunk of a streamed input.
        tracked = self._tracked[request.request_id] = _Tracked(self._num_requests, request)
        self._num_requests += 1
        self._sender.add_note(
            Arrived(tracked.number, monotonic_ns(), request.num_prompt_tokens, request.request_id)
        )

    def record_scheduled(self, output: Any, start_ns: int) -> None:
        """Record what one call of `schedule` decided."""
        scheduler, pool = self._scheduler, self._pool
        preempted = output.preempted_req_ids or ()
        if self._evictions.evicted:
            self._record_evictions(self._evictions.take(), output, start_ns)
        if (
            output.num_scheduled_tokens == self._tokens_again
            and not output.scheduled_spec_decode_tokens
            and not preempted
        ):
            self._num_again += 1
        else:
            self._look_at_each(output)
        num_waiting = len(scheduler.waiting) + len(scheduler.kv_holding_waiting)
        held = NOBODY_HELD
        if num_waiting or preempted or scheduler.deferred_waiting:
            held = self._find_held(output, preempted, num_waiting)
        state = (
            len(scheduler.running),
            num_waiting,
            *held.num_set_aside,
            len(preempted),
            pool.num_gpu_blocks - 1,
            pool.free_block_queue.num_free_blocks,
            len(pool.cached_block_hash_to_block),
        )
        self._pending.append(
            EngineStep(
                output,
                start_ns,
                monotonic_ns() - start_ns,
                state,
                self._scheduled,
                self._num_again,
                held,
            )
        )

    def _look_at_each(self, output: Any) -> None:
        """Note what each request of a step is in it for, and whether the step may come again."""
        self._settle()
        requests, tracked = self._scheduler.requests, self._tracked
        drafts = output.scheduled_spec_decode_tokens
        scheduled: list[Scheduled] = []
        is_all_decode = not drafts
        for request_id, num_tokens in output.num_scheduled_tokens.items():
            request, known = requests[request_id], tracked[request_id]
            drafted = len(drafts[request_id]) if request_id in drafts else 0
            # vLLM has already counted this step's tokens as computed.
            context = request.num_computed_tokens - num_tokens
            prefill = num_tokens - drafted
            recomputed = 0
            if prefill == 1 and context >= request.num_prompt_tokens:
                prefill = 0
            else:
                is_all_decode = False
                if known.lost_tokens:
                    recomputed = max(0, min(context + prefill, known.lost_tokens) - context)
            if not known.is_admitted:
                self._admit(request, known, context)
            known.reached_tokens = request.num_computed_tokens - drafted
            scheduled.append((request_id, known.number, context, prefill, recomputed, drafted))
        self._scheduled = scheduled
        if is_all_decode and scheduled:
            self._tokens_again = dict(output.num_scheduled_tokens)

    def _settle(self) -> None:
        """Count what the repetitions of a step computed for each of its requests."""
        if self._num_again:
            for request_id, *_ in self._scheduled:
                known = self._tracked.get(request_id)
                if known is not None:
                    known.reached_tokens += self._num_again
        self._tokens_again, self._num_again = None, 0

    def record_completed(self, output: Any, request_ids: Sequence[str], emitted: list[int]) -> None:
        """Record that the output of a scheduled step came back and was processed.

        Args:
            output: What `schedule` returned for the step.
            request_ids: The requests that its output names.
            emitted: How many each got, from `count_emitted`.
        """
        step = self._take_pending(output)
        if step is None:
            return
        step.output = None
        if output.scheduled_spec_decode_tokens:
            # Whoever left meanwhile gets nothing of this step: vLLM does not count its drafts.
            step.scheduled = [
                each if each[0] in self._tracked else (*each[:-1], 0) for each in step.scheduled
            ]
        step.end_ns = monotonic_ns()
        if not emitted.count(1) == len(emitted) == len(step.scheduled):
            step.emitted = dict(zip(request_ids, emitted, strict=False))
        if step.scheduled or step.held.queue_held_by or step.held.entries:
            self._packer.add(step)
        if self._scheduler.finished_req_ids:
            self.record_left(self._scheduler.finished_req_ids)

    def record_left(self, request_ids: Iterable[str]) -> None:
        """Record requests that are finished or aborted; those known to be gone are passed over."""
        self._settle()
        has_left = False
        for request_id in request_ids:
            known = self._tracked.pop(request_id, None)
            if known is not None:
                # Before the note: a large batch may leave while it is packed.
                self._packer.send()
                # What it decoded is cached as well: the next turn of a conversation may hit it.
                num_full = known.reached_tokens // self._scheduler.hash_block_size
                self._seen.add(known.request.block_hashes[:num_full])
                self._sender.add_note(Left(known.number, monotonic_ns()))
                has_left = True
        if has_left:
            # Its ledger can be made as soon as the reader has this.
            self._sender.flush()

    def close(self) -> None:
        """Send what is left, and give vLLM its own block metrics back."""
        self._pool.metrics_collector = self._evictions.inner
        try:
            self._packer.send()
        finally:
            self._sender.close()

    def _admit(self, request: Any, known: _Tracked, cached_tokens: int) -> None:
        known.is_admitted = True
        block_tokens = self._scheduler.hash_block_size
        hashes = request.block_hashes
        # vLLM computes at least the last token anew, so a full hit ends before it.
        longest_hit = (request.num_prompt_tokens - 1) // block_tokens
        num_seen = self._seen.count_leading(hashes[:longest_hit])
        lost_tokens = max(0, num_seen * block_tokens - cached_tokens)
        eviction = None
        if lost_tokens:
            eviction = self._seen.find_eviction(hashes[cached_tokens // block_tokens])
        self._seen.add(hashes)
        if not self._pool.enable_caching:
            block_tokens = 0
        evicted_ns, evicted_by = (0, None) if eviction is None else (eviction.time_ns, eviction.by)
        self._sender.add_note(
            Admitted(known.number, cached_tokens, lost_tokens, block_tokens, evicted_ns, evicted_by)
        )

    def _record_evictions(
        self, evicted: list[tuple[int, bytes]], output: Any, time_ns: int
    ) -> None:
        """Remember the blocks that this step took from the cache, and for whom: who got them."""
        owner_of: dict[int, str] = {}
        for new in output.scheduled_new_reqs:
            for group in new.block_ids:
                owner_of.update(dict.fromkeys(group, new.req_id))
        cached = output.scheduled_cached_reqs
        for request_id, groups in zip(cached.req_ids, cached.new_block_ids, strict=True):
            for group in groups or ():
                owner_of.update(dict.fromkeys(group, request_id))
        for block_id, block in evicted:
            owner = self._tracked.get(owner_of.get(block_id, ""))
            by = None if owner is None else owner.number
            self._seen.record_eviction(block, Eviction(time_ns, by))

    def _find_held(self, output: Any, preempted: Collection[str], num_waiting: int) -> HeldRequests:
        """Why requests were left waiting: the queue as a whole, and those with their own reason."""
        scheduler = self._scheduler
        entries: list[bytes] = []
        for request_id in preempted:
            known = self._tracked.get(request_id)
            if known is None:
                continue  # Preempted, and aborted before the next step.
            known.lost_tokens = max(known.lost_tokens, known.reached_tokens)
            if request_id not in output.num_scheduled_tokens:
                entries.append(pack_held(known.number, _KV, is_preempted=True))
        reasons = [self._reason_of_status.get(r.status, _OTHER) for r in scheduler.deferred_waiting]
        named = zip(scheduler.deferred_waiting, reasons, strict=True)
        for request, reason in islice(named, _MAX_SET_ASIDE):
            entries.append(pack_held(self._tracked[request.request_id].number, reason))
        queue = scheduler.kv_holding_waiting or scheduler.waiting
        held_by = _NOT
        if num_waiting > len(reasons):
            held_by = self._why_queue_is_held(output, preempted, queue.peek_request())
        grammar, remote_kv = reasons.count(_GRAMMAR), reasons.count(_REMOTE_KV)
        return HeldRequests(
            held_by, (grammar, remote_kv, len(reasons) - grammar - remote_kv), entries
        )

    def _why_queue_is_held(self, output: Any, preempted: Collection[str], head: Any) -> int:
        """What stopped vLLM's admission of waiting requests, in the order of its own checks."""
        scheduler = self._scheduler
        if preempted:
            return _KV  # vLLM admits nobody in a step that preempts.
        spent_tokens = output.total_num_scheduled_tokens
        left_tokens = scheduler.max_num_scheduled_tokens - spent_tokens
        # A draft model's own slots are taken from the step as well, for each request in it.
        slots = self._draft_slots * (len(output.num_scheduled_tokens) + 1)
        left_slots = scheduler.scheduler_config.max_num_batched_tokens - spent_tokens - slots
        if left_tokens <= 0 or left_slots <= 0:
            return _BUDGET
        num_seated = len(scheduler.running) + scheduler.num_waiting_for_streaming_input
        if num_seated >= scheduler.max_num_active_reqs:
            return _SEATS
        if not scheduler.scheduler_config.enable_chunked_prefill and head.num_tokens > left_tokens:
            return _BUDGET
        num_blocks = -(-head.num_tokens // scheduler.block_size)
        return _KV if num_blocks > self._pool.free_block_queue.num_free_blocks else _OTHER

    def _take_pending(self, output: Any) -> EngineStep | None:
        """The step of this output; older ones, whose output never came, are forgotten."""
        while self._pending:
            pending = self._pending.popleft()
            if pending.output is output:
                return pending
        return None


def count_emitted(model_output: Any) -> list[int]:
    """Return how many tokens each request of a step got, before vLLM cuts them at a stop."""
    return list(map(len, model_output.sampled_token_ids))


def find_missing(scheduler: Any) -> list[str]:
    """Return what the hook reads of a scheduler and this vLLM's does not have."""
    missing = []
    for path in _SCHEDULER_NEEDS:
        value = scheduler
        for name in path.split("."):
            value = getattr(value, name, _MISSING)
        if value is _MISSING:
            missing.append(path)
    return missing
