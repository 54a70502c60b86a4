"""vLLM's CPU worker, with steps that drafted nothing run as if speculation were off (vLLM 0.32).

With a speculative configuration vLLM sends every step through its rejection sampler, also where no
request has a draft, which is a good part of a small model's step. Its runner looks at
`speculative_config` anew in each step, so a step without drafts goes the plain way while that is
None. Only for vLLM's CPU worker: on a GPU the runner's captured graphs depend on it.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.worker.cpu_worker import CPUWorker


class PlainStepWorker(CPUWorker):  # type: ignore[misc]
    """Takes vLLM's plain path through a step in which no request has a draft."""

    _evenkeel_config: Any = None

    def init_device(self) -> None:
        """Start as vLLM's worker does, and note what it speculates with."""
        super().init_device()
        # A hybrid model's recurrent state is read at an offset that only speculation applies.
        if not self.model_config.is_hybrid:
            self._evenkeel_config = self.model_runner.speculative_config

    def execute_model(self, scheduler_output: Any, *args: Any, **options: Any) -> Any:
        """Run a step; its sampling, which vLLM calls apart, finds the same setting."""
        if self._evenkeel_config is not None:
            has_drafts = bool(scheduler_output.scheduled_spec_decode_tokens)
            self.model_runner.speculative_config = self._evenkeel_config if has_drafts else None
        return super().execute_model(scheduler_output, *args, **options)
