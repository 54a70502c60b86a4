"""Verify a cached answer in the step that completes its prompt (vLLM 0.32, synchronous scheduling).

vLLM's scheduler gives drafts to running requests only; its model runner verifies them for any
request, as it takes the last tokens of each for the drafts. So the drafts are added to a step that
vLLM has planned, just before it counts the step's tokens as computed.
"""

from __future__ import annotations

from typing import Any

from evenkeel_runtime.speculation.engine import Speculation

_NEEDS = (
    "_update_after_schedule use_v2_model_runner connector ec_connector needs_kv_cache_zeroing "
    "has_mamba_layers prefix_replay_tokens max_model_len"
).split()


def can_extend_steps(scheduler: Any) -> bool:
    """Whether a step that this scheduler has planned can be extended.

    Not if its steps are planned ahead, if connectors have been told of its blocks, or if new blocks
    that must be zeroed have been collected.
    """
    return all(hasattr(scheduler, name) for name in _NEEDS) and not (
        scheduler.use_v2_model_runner
        or scheduler.scheduler_config.async_scheduling
        or scheduler.parallel_config.pipeline_parallel_size > 1
        or scheduler.connector is not None
        or scheduler.ec_connector is not None
        or scheduler.needs_kv_cache_zeroing
        or scheduler.has_mamba_layers
        or scheduler.prefix_replay_tokens
    )


def draft_prompts(scheduler: Any, speculation: Speculation, output: Any) -> None:
    """Add drafts to a planned step, for new requests whose whole prompt is in it."""
    begun = []
    for new in output.scheduled_new_reqs:
        request = scheduler.requests[new.req_id]
        end = request.num_computed_tokens + output.num_scheduled_tokens[new.req_id]
        if end == request.num_tokens and _takes_drafts(request):
            begun.append(request)
    if not begun:
        return
    room = _find_budget(scheduler) - output.total_num_scheduled_tokens
    drafts = speculation.draft_first(begun, len(output.num_scheduled_tokens), room)
    for request in begun:
        _add_drafts(scheduler, output, request, drafts.get(request.request_id, []))


def draft_last_chunks(scheduler: Any, speculation: Speculation, room: int) -> None:
    """Set drafts for running requests whose last part of the prompt may be in the next step.

    Args:
        scheduler: vLLM's scheduler.
        speculation: Makes the drafts.
        room: Tokens of the step that they may take in all.
    """
    begun = [
        request
        for request in scheduler.running
        if request.is_prefill_chunk
        and request.num_tokens - request.num_computed_tokens <= room
        and _takes_drafts(request)
    ]
    drafts = speculation.draft_first(begun, len(scheduler.running), room) if begun else {}
    for request in begun:
        request.spec_token_ids = drafts.get(request.request_id, [])


def find_room(scheduler: Any) -> int:
    """Return how many tokens of the next step drafts may take: prompts get up to half of it."""
    budget = _find_budget(scheduler)
    chunks = (r.num_tokens - r.num_computed_tokens for r in scheduler.running if r.is_prefill_chunk)
    wanted = budget if scheduler.waiting else sum(chunks)
    return budget - min(wanted, budget // 2) - len(scheduler.running)


def _find_budget(scheduler: Any) -> int:
    most = scheduler.scheduler_config.max_num_batched_tokens
    return int(min(scheduler.max_num_scheduled_tokens, most))


def _takes_drafts(request: Any) -> bool:
    """Whether a request's first tokens can be verified along with its prompt."""
    params = request.sampling_params
    return (
        params is not None
        and params.prompt_logprobs is None
        and not request.num_output_tokens
        and not request.use_structured_output
        and not request.has_encoder_inputs
    )


def _add_drafts(scheduler: Any, output: Any, request: Any, tokens: list[int]) -> None:
    """Add drafts to a request's part of a planned step, if there are blocks for them."""
    request_id = request.request_id
    limits = getattr(scheduler, "_evenkeel_drafts", None)
    if limits is not None:
        tokens = limits.cut(request_id, tokens)
    tokens = tokens[: max(scheduler.max_model_len - request.num_tokens - 1, 0)]
    if not tokens:
        return
    size = output.num_scheduled_tokens[request_id] + len(tokens)
    if scheduler.kv_cache_manager.allocate_slots(request, size) is None:
        return
    (new,) = (new for new in output.scheduled_new_reqs if new.req_id == request_id)
    new.block_ids = scheduler.kv_cache_manager.get_block_ids(request_id)
    output.num_scheduled_tokens[request_id] = size
    output.total_num_scheduled_tokens += len(tokens)
    output.scheduled_spec_decode_tokens[request_id] = tokens
