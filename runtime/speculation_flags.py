"""The vLLM flags that switch the speculation hook on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_SCHEDULER_CLASS = "runtime.speculation_hook.SpeculativeScheduler"
_PROPOSER_CLASS = "runtime.speculation_hook.SilentProposer"
_CPU_WORKER_CLASS = "runtime.speculation_worker.PlainStepWorker"
# Any batch size: vLLM ends the schedule at its own `max_num_seqs`.
_ANY_BATCH = 1 << 20


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


def speculation_flags(max_tokens: int, is_cpu: bool) -> SpeculationFlags:
    """Return the flags for drafts of at most `max_tokens`, on vLLM's CPU platform or another.

    The schedule by batch size, of one entry, keeps vLLM from padding a request whose prompt is
    cached with `max_tokens` tokens that are no drafts (`pad_spec_decode` in its scheduler).
    """
    config = {
        "method": "custom_class",
        "model": _PROPOSER_CLASS,
        "num_speculative_tokens": max_tokens,
        "num_speculative_tokens_per_batch_size": [[1, _ANY_BATCH, max_tokens]],
    }
    return SpeculationFlags(config, _SCHEDULER_CLASS, _CPU_WORKER_CLASS if is_cpu else "auto")
