"""Apply control's limits to a request, and read what the engines have room for (vLLM 0.32)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenkeel_runtime.control.admission import AdmissionControl
from evenkeel_runtime.control.costs import PromptCost, RenderedPrompt
from evenkeel_runtime.control.measure import measure
from evenkeel_runtime.control.prefixes import KvCache
from evenkeel_runtime.control.visit import RefusedError
from evenkeel_runtime.request.trace import EngineRun
from evenkeel_runtime.wire.drafts import MAX_DRAFT_KEY, SPECULATE_KEY

# vLLM's default for `--max-num-seqs`, in case this release does not expose the value used.
_USUAL_SLOTS = 256


def apply_limits(
    control: AdmissionControl, run: EngineRun, prompt: Any, params: Any, salt: str
) -> None:
    """Measure a prompt, and limit the answer and the drafts as the control file says.

    A prompt over its limit is refused at the door; without one, vLLM answers 400 for the error (or
    ends a stream that has begun).

    Raises:
        ValueError: If the prompt is over its limit and the request has no door.
    """
    request = run.request
    tokens = prompt.get("prompt_token_ids") if isinstance(prompt, Mapping) else None
    if request is None or request.visit is None or tokens is None:
        return
    if not hasattr(params, "max_tokens"):
        return  # A pooling request has no answer to limit.
    visit = request.visit
    visit.has_output = visit.has_output or any(r.last_output is not None for r in request.runs)
    prompt = RenderedPrompt(tokens, salt, params.max_tokens, getattr(params, "n", 1) or 1)
    try:
        cost = measure(control, visit, prompt)
    except RefusedError as error:
        if request.door is None:
            run.error = error
            raise ValueError(str(error)) from error
        request.door.refuse(error)
        return
    run.is_cut = cost.max_tokens != params.max_tokens
    _limit(params, cost)


def _limit(params: Any, cost: PromptCost) -> None:
    if cost.max_tokens is not None and cost.max_tokens != params.max_tokens:
        params.max_tokens = cost.max_tokens
        params.min_tokens = min(params.min_tokens, cost.max_tokens)
    if cost.draft_tokens is not None:
        limit = {MAX_DRAFT_KEY: cost.draft_tokens}
        if not cost.draft_tokens:
            limit = {SPECULATE_KEY: False, MAX_DRAFT_KEY: 0}
        params.extra_args = (params.extra_args or {}) | limit


def count_slots(engine: Any) -> int:
    """Return how many requests the engines behind this server run at a time."""
    config = getattr(engine, "vllm_config", None)
    scheduler = getattr(config, "scheduler_config", None)
    parallel = getattr(config, "parallel_config", None)
    # Of the engines of other servers, this one uses none (vllm/v1/engine/core_client.py).
    is_local = getattr(parallel, "local_engines_only", False)
    name = "data_parallel_size_local" if is_local else "data_parallel_size"
    num_engines = max(1, int(getattr(parallel, name, 1)))
    return num_engines * int(getattr(scheduler, "max_num_seqs", _USUAL_SLOTS))


def read_kv_cache(engine: Any) -> KvCache:
    """Return the size of the engines' KV cache, as far as vLLM says."""
    config = getattr(getattr(engine, "vllm_config", None), "cache_config", None)
    return KvCache(
        num_blocks=int(getattr(config, "num_gpu_blocks", None) or 0),
        block_tokens=int(getattr(config, "block_size", None) or 16),
        has_prefixes=bool(getattr(config, "enable_prefix_caching", True)),
    )
