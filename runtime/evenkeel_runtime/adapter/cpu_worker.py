"""vLLM's CPU workers with speculation fixed, and one that skips verification without drafts.

Only for vLLM's CPU worker and its V1 model runner (vLLM 0.32): on a GPU the runner's captured
graphs depend on its configuration, and verification uses other kernels.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from vllm.v1.sample.logits_processor import BUILTIN_LOGITS_PROCESSORS, LogitsProcessors
from vllm.v1.worker.cpu_worker import CPUWorker

from evenkeel_runtime.adapter.sampled_places import TargetDistributions, find_target_distributions
from evenkeel_runtime.adapter.seeded_prompts import mend_seeds
from evenkeel_runtime.adapter.verification_kernels import mend_kernels
from evenkeel_runtime.speculation.draftable import withhold_drafts
from evenkeel_runtime.speculation.sampled_watch import WATCH_ATTRIBUTE, SampledWatch

logger = logging.getLogger(__name__)

_Sample = Callable[[Any, Any], Any]


class ExactWorker(CPUWorker):  # type: ignore[misc]
    """Verifies drafts correctly, and serves without drafts requests that vLLM would reject."""

    _evenkeel_is_exact = True
    _evenkeel_sample: _Sample

    def init_device(self) -> None:
        """Start like vLLM's worker, with kernels tested and every logits processor loaded."""
        super().init_device()
        if self.use_v2_model_runner:
            return
        self._evenkeel_is_exact = mend_kernels()
        mend_seeds()
        runner = self.model_runner
        # With speculation vLLM loads only the one for `min_tokens`. The others are correct for the
        # last token of a step, and a request without drafts has only that one.
        runner.input_batch.logitsprocs = LogitsProcessors(
            processor(self.vllm_config, self.device, False)
            for processor in BUILTIN_LOGITS_PROCESSORS
        )
        self._evenkeel_sample = runner._sample
        runner._sample = self._evenkeel_sample_step

    def take_draft_token_ids(self) -> Any:
        """Return vLLM's own drafts, except those of requests that must not be drafted for."""
        drafts = super().take_draft_token_ids()
        if self.use_v2_model_runner:
            return drafts
        return withhold_drafts(drafts, self.model_runner.requests, self._evenkeel_is_exact)

    def _evenkeel_sample_step(self, logits: Any, drafted: Any) -> Any:
        """Sample a step; `drafted` is vLLM's `SpecDecodeMetadata`, None without drafts."""
        runner = self.model_runner
        metadata = runner.input_batch.sampling_metadata
        if drafted is None or not metadata.logprob_token_ids:
            return self._evenkeel_sample(logits, drafted)
        # Verification combines full rows of log-probabilities with the few tokens that such a
        # request names, and fails. So all drafts of the step are rejected: each request is sampled
        # after its last token, whose row precedes those of its drafts.
        num_sampled = drafted.cu_num_sampled_tokens
        first_rows = num_sampled.new_zeros(num_sampled.shape)
        first_rows[1:] = num_sampled[:-1]
        runner.input_batch.update_async_output_token_ids()
        undrafted = replace(metadata, spec_token_ids=None)
        return runner.sampler(logits=logits[first_rows.long()], sampling_metadata=undrafted)


class PlainStepWorker(ExactWorker):
    """Takes vLLM's plain path in a step in which no request has a draft.

    With a speculative configuration vLLM sends every step through its rejection sampler, a large
    share of a small model's step time. Its runner reads `speculative_config` in each step, so a
    step without drafts takes the plain path while that is None.
    """

    _evenkeel_config: Any = None
    _evenkeel_watch: SampledWatch | None = None

    def init_device(self) -> None:
        """Start like `ExactWorker`, and save the speculative configuration."""
        super().init_device()
        self._evenkeel_random = Random()
        self._evenkeel_watch = SampledWatch()
        # A hybrid model's recurrent state is read at an offset that is applied only with
        # speculation.
        if not self.model_config.is_hybrid:
            self._evenkeel_config = self.model_runner.speculative_config

    def execute_model(self, scheduler_output: Any, *args: Any, **options: Any) -> Any:
        """Run a step; its sampling, a separate call by vLLM, sees the same setting."""
        if self._evenkeel_config is not None:
            has_drafts = bool(scheduler_output.scheduled_spec_decode_tokens)
            self.model_runner.speculative_config = self._evenkeel_config if has_drafts else None
        return super().execute_model(scheduler_output, *args, **options)

    def sample_tokens(self, *args: Any, **options: Any) -> Any:
        """Sample the step, and attach the watch's findings so far."""
        output = super().sample_tokens(*args, **options)
        watch = self._evenkeel_watch
        if output is not None and watch is not None and watch.num_tokens:
            setattr(output, WATCH_ATTRIBUTE, (watch.num_tokens, watch.log_evidence))
        return output

    def _evenkeel_sample_step(self, logits: Any, drafted: Any) -> Any:
        watch = self._evenkeel_watch
        if drafted is None or watch is None or self.model_runner.input_batch.all_greedy:
            return super()._evenkeel_sample_step(logits, drafted)
        found: list[TargetDistributions] = []
        try:
            # Run before vLLM samples, which may overwrite the logits.
            found = find_target_distributions(
                self.model_runner, logits, drafted, self._evenkeel_random
            )
        except Exception as error:
            self._evenkeel_stop_watching(error)
        output = super()._evenkeel_sample_step(logits, drafted)
        try:
            for target in found:
                for token in target.of_tokens(output.sampled_token_ids):
                    watch.record(token)
        except Exception as error:
            self._evenkeel_stop_watching(error)
        return output

    def _evenkeel_stop_watching(self, error: Exception) -> None:
        """Disable the watch after its first error."""
        self._evenkeel_watch = None
        logger.error("sampled-token watch disabled after an error: %r", error, exc_info=error)
