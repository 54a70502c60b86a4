"""Turn the decisions of vLLM's scheduler and the outputs of its steps into step records.

Everything here runs in the engine's loop, once per step or per request in a step, so it only reads,
counts and packs. `find_missing` checks in advance whether a scheduler has what is read here.
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
    NONE_HELD,
    EngineStep,
    HeldRequests,
    Scheduled,
    StepPacker,
    pack_held,
)
from evenkeel_runtime.engine.seen_blocks import Eviction, SeenBlocks
from evenkeel_runtime.engine.sender import StepSender
from evenkeel_runtime.wire.drafts import TENANT_KEY
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
# Maximum number of set-aside requests listed per step.
_MAX_SET_ASIDE = 64
# Plain numbers: enum members would cost more than everything else here.
_NOT, _BUDGET, _KV, _SEATS, _GRAMMAR, _REMOTE_KV, _OTHER = map(int, Held)
_MISSING = object()


@dataclass(slots=True)
class _Tracked:
    """A request in the scheduler: its number, its progress, and what preemption discarded."""

    number: int
    request: Any
    is_admitted: bool = False
    reached_tokens: int = 0
    lost_tokens: int = 0


class StepRecorder:
    """Records a scheduler's steps.

    Args:
        scheduler: vLLM's scheduler.
        sender: Sends the records.
        seen_blocks: Maximum number of prefix-cache blocks to remember.
        reason_of_status: Why a request with a vLLM status is set aside; `Held.OTHER` for the rest.
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
        # The last step recorded request by request, and how often it has repeated since.
        self._scheduled: list[Scheduled] = []
        self._tokens_again: dict[str, int] | None = None
        self._num_again = 0
        self._num_requests = 0

    def record_arrival(self, request: Any) -> None:
        """Record a request that was added to the scheduler."""
        if request.request_id in self._tracked:
            return  # Another chunk of a streamed input.
        tracked = self._tracked[request.request_id] = _Tracked(self._num_requests, request)
        self._num_requests += 1
        extra = getattr(request.sampling_params, "extra_args", None) or {}
        self._sender.add_event(
            Arrived(
                tracked.number,
                monotonic_ns(),
                request.num_prompt_tokens,
                request.request_id,
                str(extra.get(TENANT_KEY) or ""),
            )
        )

    def record_scheduled(self, output: Any, start_ns: int) -> None:
        """Record the decisions of one call of `schedule`."""
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
            self._record_each(output)
        num_waiting = len(scheduler.waiting) + len(scheduler.kv_holding_waiting)
        held = NONE_HELD
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

    def _record_each(self, output: Any) -> None:
        """Record the work of each request in a step, and whether the step may repeat."""
        self._add_repeats()
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

    def _add_repeats(self) -> None:
        """Add the tokens computed by repetitions of a step to the progress of its requests."""
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
            request_ids: The requests in its output.
            emitted: Number of tokens for each, from `count_emitted`.
        """
        step = self._take_pending(output)
        if step is None:
            return
        step.output = None
        if output.scheduled_spec_decode_tokens:
            # vLLM does not count the drafts of requests that have left since.
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
        """Record finished or aborted requests; those already recorded are ignored."""
        self._add_repeats()
        has_left = False
        for request_id in request_ids:
            known = self._tracked.pop(request_id, None)
            if known is not None:
                # Before the event: packing may fill a batch, which is then sent.
                self._packer.send()
                # Its output is cached, too: the next turn of a conversation may hit it.
                num_full = known.reached_tokens // self._scheduler.hash_block_size
                self._seen.add(known.request.block_hashes[:num_full])
                self._sender.add_event(Left(known.number, monotonic_ns()))
                has_left = True
        if has_left:
            # The reader can build the ledger as soon as it has this.
            self._sender.flush()

    def close(self) -> None:
        """Send the remaining records and restore vLLM's own block metrics."""
        self._pool.metrics_collector = self._evictions.inner
        try:
            self._packer.send()
        finally:
            self._sender.close()

    def _admit(self, request: Any, known: _Tracked, cached_tokens: int) -> None:
        known.is_admitted = True
        block_tokens = self._scheduler.hash_block_size
        hashes = request.block_hashes
        # vLLM always computes the last prompt token, so a full hit ends before it.
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
        self._sender.add_event(
            Admitted(known.number, cached_tokens, lost_tokens, block_tokens, evicted_ns, evicted_by)
        )

    def _record_evictions(
        self, evicted: list[tuple[int, bytes]], output: Any, time_ns: int
    ) -> None:
        """Record the blocks that this step evicted, and the requests that got them."""
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
        """Return why requests were left waiting: the queue, and those with their own reason."""
        scheduler = self._scheduler
        entries: list[bytes] = []
        for request_id in preempted:
            known = self._tracked.get(request_id)
            if known is None:
                continue  # Preempted, then aborted before the next step.
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
            held_by = self._find_queue_reason(output, preempted, queue.peek_request())
        grammar, remote_kv = reasons.count(_GRAMMAR), reasons.count(_REMOTE_KV)
        return HeldRequests(
            held_by, (grammar, remote_kv, len(reasons) - grammar - remote_kv), entries
        )

    def _find_queue_reason(self, output: Any, preempted: Collection[str], head: Any) -> int:
        """Return why vLLM stopped admitting requests; checks in the same order as vLLM."""
        scheduler = self._scheduler
        if preempted:
            return _KV  # vLLM admits no requests in a step that preempts.
        spent_tokens = output.total_num_scheduled_tokens
        left_tokens = scheduler.max_num_scheduled_tokens - spent_tokens
        # A draft model also takes slots of the step, for each request in it.
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
        """Return the step of this output; older steps, which got no output, are dropped."""
        while self._pending:
            pending = self._pending.popleft()
            if pending.output is output:
                return pending
        return None


def count_emitted(model_output: Any) -> list[int]:
    """Return the number of tokens per request of a step, before vLLM truncates at a stop."""
    return list(map(len, model_output.sampled_token_ids))


def find_missing(scheduler: Any) -> list[str]:
    """Return the attributes that the hook needs and this vLLM's scheduler lacks."""
    missing = []
    for path in _SCHEDULER_NEEDS:
        value = scheduler
        for name in path.split("."):
            value = getattr(value, name, _MISSING)
        if value is _MISSING:
            missing.append(path)
    return missing
