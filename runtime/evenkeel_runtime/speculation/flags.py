"""The vLLM flags that switch the speculation hook on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_SCHEDULER_CLASS = "evenkeel_runtime.adapter.speculative_scheduler.SpeculativeScheduler"
_PROPOSER_CLASS = "evenkeel_runtime.adapter.speculative_scheduler.SilentProposer"
_CPU_WORKER_CLASS = "evenkeel_runtime.adapter.cpu_worker.PlainStepWorker"
_GPU_WORKER_CLASS = "evenkeel_runtime.adapter.gpu_worker.DraftedStepWorker"
# vLLM's own n-gram drafts on the GPU, in whose place ours are written.
_AHEAD_METHOD = "ngram_gpu"
# Any batch size: vLLM ends the schedule at its own `max_num_seqs`.
ANY_BATCH = 1 << 20


@dataclass(frozen=True, slots=True)
class SpeculationFlags:
    """What vLLM is told.

    Attributes:
        config: Its speculative configuration.
        scheduler_class: Dotted path of its scheduler.
        worker_class: Dotted path of its worker; `auto` is vLLM's own.
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


def speculation_flags(max_tokens: int, is_cpu: bool, is_ahead: bool = False) -> SpeculationFlags:
    """Return the flags for drafts of at most `max_tokens`.

    The schedule by batch size keeps vLLM from padding a request whose prompt is cached with
    `max_tokens` tokens that are no drafts (`pad_spec_decode` in its scheduler). Under `is_ahead` it
    also has vLLM capture graphs for steps without drafts, which are most; how many tokens are
    drafted at which batch size is not its to say.

    Args:
        max_tokens: Longest draft of a request.
        is_cpu: Whether vLLM computes on the CPU.
        is_ahead: Whether it can run the GPU worker that takes drafts of steps planned ahead; it
            does so under the name of vLLM's own method that allows asynchronous scheduling.
    """
    if is_ahead:
        ahead = {
            "method": _AHEAD_METHOD,
            "num_speculative_tokens": max_tokens,
            "num_speculative_tokens_per_batch_size": [[1, 1, 0], [2, ANY_BATCH, max_tokens]],
        }
        return SpeculationFlags(ahead, _SCHEDULER_CLASS, _GPU_WORKER_CLASS)
    config = {
        "method": "custom_class",
        "model": _PROPOSER_CLASS,
        "num_speculative_tokens": max_tokens,
        "num_speculative_tokens_per_batch_size": [[1, ANY_BATCH, max_tokens]],
    }
    return SpeculationFlags(config, _SCHEDULER_CLASS, _CPU_WORKER_CLASS if is_cpu else "auto")


def drafts_ahead(vllm_config: Any) -> bool:
    """Whether steps are drafted while the one before is under way: what worker and scheduler ask.

    Only vLLM's V2 model runner keeps drafts where they can be written to, and of several engines
    or stages each would have to write the same at the same step.
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
