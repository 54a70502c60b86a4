"""Build the vLLM flags that enable the speculation hook."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_SCHEDULER_CLASS = "evenkeel_runtime.adapter.speculative_scheduler.SpeculativeScheduler"
_PROPOSER_CLASS = "evenkeel_runtime.adapter.speculative_scheduler.SilentProposer"
_CPU_WORKER_CLASS = "evenkeel_runtime.adapter.cpu_worker.PlainStepWorker"
_GPU_WORKER_CLASS = "evenkeel_runtime.adapter.gpu_worker.DraftedStepWorker"
# vLLM's own n-gram method on the GPU; ours replaces the drafts it writes.
_AHEAD_METHOD = "ngram_gpu"
# Larger than any batch: vLLM cuts the schedule at its own `max_num_seqs`.
ANY_BATCH = 1 << 20


@dataclass(frozen=True, slots=True)
class SpeculationFlags:
    """vLLM's settings for speculation.

    Attributes:
        config: The speculative configuration.
        scheduler_class: Dotted path of the scheduler.
        worker_class: Dotted path of the worker; `auto` selects vLLM's own.
    """

    config: dict[str, Any]
    scheduler_class: str
    worker_class: str

    def as_flags(self) -> tuple[str, ...]:
        """Return the flags of `vllm serve`."""
        return (
            *("--speculative-config", json.dumps(self.config)),
            *("--scheduler-cls", self.scheduler_class),
            *("--worker-cls", self.worker_class),
        )


def speculation_flags(
    max_tokens: int, is_cpu: bool, is_ahead: bool = False, answer_tokens: int = 0
) -> SpeculationFlags:
    """Return the flags for drafts of up to `max_tokens`.

    The schedule by batch size keeps vLLM from padding a request whose prompt is cached with
    `max_tokens` placeholder tokens (`pad_spec_decode` in its scheduler). With `is_ahead` it also
    makes vLLM capture graphs for steps without drafts, which are the majority. It does not decide
    the draft lengths; the controller does.

    Args:
        max_tokens: Longest draft of a request.
        is_cpu: Whether vLLM runs on the CPU.
        is_ahead: Whether to use the GPU worker, which accepts drafts for steps planned ahead. It
            uses the name of a vLLM method that allows asynchronous scheduling.
        answer_tokens: Longest part of a cached or past answer to verify in a step, on a CPU. On
            a GPU vLLM captures graphs for the longest draft, so `max_tokens` applies.
    """
    if is_ahead:
        ahead = {
            "method": _AHEAD_METHOD,
            "num_speculative_tokens": max_tokens,
            "num_speculative_tokens_per_batch_size": [[1, 1, 0], [2, ANY_BATCH, max_tokens]],
        }
        return SpeculationFlags(ahead, _SCHEDULER_CLASS, _GPU_WORKER_CLASS)
    if is_cpu:
        max_tokens = max(max_tokens, answer_tokens)
    config = {
        "method": "custom_class",
        "model": _PROPOSER_CLASS,
        "num_speculative_tokens": max_tokens,
        "num_speculative_tokens_per_batch_size": [[1, ANY_BATCH, max_tokens]],
    }
    return SpeculationFlags(config, _SCHEDULER_CLASS, _CPU_WORKER_CLASS if is_cpu else "auto")


def drafts_ahead(vllm_config: Any) -> bool:
    """Whether the next step is drafted while the previous one is still running.

    This needs vLLM's V2 model runner, the only one whose drafts can be overwritten, and a single
    engine and stage: several would have to write the same drafts at the same step.
    """
    speculative, parallel = vllm_config.speculative_config, vllm_config.parallel_config
    return (
        speculative is not None
        and speculative.method == _AHEAD_METHOD
        and speculative.uses_dynamic_speculative_decoding()
        and bool(vllm_config.use_v2_model_runner)
        and parallel.pipeline_parallel_size == 1
        and parallel.data_parallel_size == 1
    )
