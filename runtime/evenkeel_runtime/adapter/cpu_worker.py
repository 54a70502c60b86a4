"""vLLM's CPU workers with speculation put right, and one that also skips what nobody drafted for.

Only for vLLM's CPU worker and its V1 model runner (vLLM 0.32): on a GPU the runner's captured
graphs depend on its configuration, and other kernels verify.
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
from evenkeel_runtime.adapter.verification_kernels import mend_kernels
from evenkeel_runtime.speculation.draftable import withhold_drafts
from evenkeel_runtime.speculation.sampled_watch import WATCH_ATTRIBUTE, SampledWatch

logger = logging.getLogger(__name__)

_Sample = Callable[[Any, Any], Any]


class ExactWorker(CPUWorker):  # type: ignore[misc]
    """Verifies drafts as vLLM means to, and serves requests undrafted that vLLM would refuse."""

    _evenkeel_is_exact = True
    _evenkeel_sample: _Sample

    def init_device(self) -> None:
        """Start as vLLM's worker does, its kernels tested and every logits processor loaded."""
        super().init_device()
        if self.use_v2_model_runner:
            return
        self._evenkeel_is_exact = mend_kernels()
        runner = self.model_runner
        # With speculation vLLM loads the one for `min_tokens` only. The others are right for the
        # last token of a step, which is the only one of a request without drafts.
        runner.input_batch.logitsprocs = LogitsProcessors(
            processor(self.vllm_config, self.device, False)
            for processor in BUILTIN_LOGITS_PROCESSORS
        )
        self._evenkeel_sample = runner._sample
        runner._sample = self._evenkeel_sample_step

    def take_draft_token_ids(self) -> Any:
        """Return vLLM's own drafts, those of requests left out that may not be drafted for."""
        drafts = super().take_draft_token_ids()
        if self.use_v2_model_runner:
            return drafts
        return withhold_drafts(drafts, self.model_runner.requests, self._evenkeel_is_exact)

    def _evenkeel_sample_step(self, logits: Any, drafted: Any) -> Any:
        """Sample a step; `drafted` is vLLM's `SpecDecodeMetadata`, None where nothing is."""
        runner = self.model_runner
        metadata = runner.input_batch.sampling_metadata
        if drafted is None or not metadata.logprob_token_ids:
            return self._evenkeel_sample(logits, drafted)
        # Verification puts full rows of log-probabilities together with the few tokens that such a
        # request names, and fails. So all drafts of the step are refused: each request is sampled
        # after its last token, whose row comes before those of its drafts.
        num_sampled = drafted.cu_num_sampled_tokens
        first_rows = num_sampled.new_zeros(num_sampled.shape)
        first_rows[1:] = num_sampled[:-1]
        runner.input_batch.update_async_output_token_ids()
        undrafted = replace(metadata, spec_token_ids=None)
        return runner.sampler(logits=logits[first_rows.long()], sampling_metadata=undrafted)


class PlainStepWorker(ExactWorker):
    """Takes vLLM's plain path through a step in which no request has a draft.

    With a speculative configuration vLLM sends every step through its rejection sampler, which is a
    good part of a small model's step. Its runner looks at `speculative_config` anew in each step,
    so a step without drafts goes the plain way while that is None.
    """

    _evenkeel_config: Any = None
    _evenkeel_watch: SampledWatch | None = None

    def init_device(self) -> None:
        """Start as `ExactWorker` does, and note what it speculates with."""
        super().init_device()
        self._evenkeel_random = Random()
        self._evenkeel_watch = SampledWatch()
        # A hybrid model's recurrent state is read at an offset that only speculation applies.
        if not self.model_config.is_hybrid:
            self._evenkeel_config = self.model_runner.speculative_config

    def execute_model(self, scheduler_output: Any, *args: Any, **options: Any) -> Any:
        """Run a step; its sampling, which vLLM calls apart, finds the same setting."""
        if self._evenkeel_config is not None:
            has_drafts = bool(scheduler_output.scheduled_spec_decode_tokens)
            self.model_runner.speculative_config = self._evenkeel_config if has_drafts else None
        return super().execute_model(scheduler_output, *args, **options)

    def sample_tokens(self, *args: Any, **options: Any) -> Any:
        """Sample the step that was run, and send along what the watch has found so far."""
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
            # Before vLLM samples: it may write into the logits.
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
        """Go on without the watch; the first error is the last one."""
        self._evenkeel_watch = None
        logger.error("sampled tokens are not watched any more: %r", error, exc_info=error)
