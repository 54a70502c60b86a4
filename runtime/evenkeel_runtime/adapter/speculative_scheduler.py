"""The speculation hook: a vLLM scheduler that drafts, and a stub proposer (vLLM 0.32).

The only file that touches vLLM for speculation. vLLM lets a `custom_class` proposer into its model
worker, where it sees token arrays without request ids, tenants or step times. The scheduler sees
all of these and sets the drafts of each request itself (`Request.spec_token_ids`, of any length,
which `Scheduler.schedule` uses), so the proposer in the worker proposes nothing: it exists because
vLLM verifies drafts only with a speculative configuration. On a GPU vLLM plans a step
while the one before is under way; drafts are then made for the step after that
(`evenkeel_runtime.speculation.engine`) and written where the GPU reads them
(`evenkeel_runtime.adapter.gpu_worker`). If this vLLM lacks what the hook needs, or the hook fails,
requests are served without drafts, with one warning.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import log
from pathlib import Path
from random import Random
from threading import Thread
from time import monotonic
from typing import Any, cast

from vllm.platforms import current_platform

from evenkeel.settings import load
from evenkeel_runtime.adapter.prompt_drafts import (
    can_extend_steps,
    draft_last_chunks,
    draft_prompts,
    find_room,
)
from evenkeel_runtime.adapter.scheduler import AsyncLedgerScheduler, LedgerScheduler
from evenkeel_runtime.adapter.verification_kernels import mend_kernels
from evenkeel_runtime.speculation.controller import GoodputController, StepFacts
from evenkeel_runtime.speculation.draft_file import load_store, save_store, save_store_aside
from evenkeel_runtime.speculation.draft_store import DraftStore
from evenkeel_runtime.speculation.engine import Speculation
from evenkeel_runtime.speculation.flags import drafts_ahead
from evenkeel_runtime.speculation.sampled_watch import WATCH_ATTRIBUTE
from evenkeel_runtime.speculation.settings import SpeculationSettings
from evenkeel_runtime.speculation.state import describe_state
from evenkeel_runtime.wire.drafts import REPORT_KEY, DraftCounts, DraftReport, encode_report

logger = logging.getLogger(__name__)

SCHEDULER_CLASS = "evenkeel_runtime.adapter.speculative_scheduler.SpeculativeScheduler"
# How often the speculation state is attached to a finished request.
_STATE_INTERVAL_S = 1.0
# Minimum interval between writes of past answers; a killed engine loses later ones.
_KEEP_INTERVAL_S = 30.0
_NEEDS = (
    "running requests structured_output_manager num_spec_tokens finish_requests "
    "update_draft_token_ids make_spec_decoding_stats"
).split()


class SilentProposer:
    """The proposer that vLLM calls in the worker; returns nothing, the scheduler sets the drafts.

    Args:
        vllm_config: vLLM's configuration.
    """

    def __init__(self, vllm_config: Any) -> None:
        del vllm_config

    def load_model(self, *args: Any, **options: Any) -> None:
        """Load nothing."""

    def propose(self, sampled_token_ids: list[list[int]], *_: Any, **__: Any) -> list[list[int]]:
        """Return an empty draft for each request."""
        return [[] for _ in sampled_token_ids]


class SpeculativeScheduler(LedgerScheduler):
    """The recording scheduler that also sets each request's drafts after each step."""

    evenkeel_speculation: Speculation | None = None

    def __new__(cls, *args: Any, **options: Any) -> SpeculativeScheduler:
        """Return the variant for this configuration; without one, the recording scheduler."""
        config = options["vllm_config"] if "vllm_config" in options else args[0]
        if config.scheduler_config.async_scheduling:
            if not config.use_v2_model_runner:
                logger.warning(
                    "our drafts are off: vLLM's V1 model runner does not accept drafts for "
                    "steps planned ahead"
                )
                plain: Any = AsyncLedgerScheduler(*args, **options)
                return cast(SpeculativeScheduler, plain)
            if not issubclass(cls, AsyncLedgerScheduler):
                cls = AsyncSpeculativeScheduler
        return cast(SpeculativeScheduler, super().__new__(cls, *args, **options))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._evenkeel_settings = load(SpeculationSettings, {}).settings
        self._evenkeel_errors = 0
        self._evenkeel_has_told = False
        self._evenkeel_state_due_s = 0.0
        self._evenkeel_kept = 0
        # Per request, the drafts that vLLM counted in the step being processed.
        self._evenkeel_verified: dict[str, tuple[int, int]] = {}
        # Whether cached answers can be verified along with their prompts.
        self._evenkeel_extends = can_extend_steps(self)
        self._evenkeel_writer: Thread | None = None
        self._evenkeel_keep_due_s = 0.0
        try:
            self.evenkeel_speculation = self._start_speculation()
        except Exception as error:
            self._stop_drafting(error)

    def schedule(self, *args: Any, **options: Any) -> Any:
        """Schedule a step, and record its start and its drafts."""
        speculation = self.evenkeel_speculation
        if speculation is None:
            return super().schedule(*args, **options)
        speculation.begin_step()
        output = super().schedule(*args, **options)
        try:
            for request_id, tokens in output.scheduled_spec_decode_tokens.items():
                speculation.record_scheduled(request_id, len(tokens))
        except Exception as error:
            self._stop_drafting(error)
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Process a step's output, learn from it, and draft for the next step."""
        speculation = self.evenkeel_speculation
        if speculation is None:
            outputs = super().update_from_output(scheduler_output, model_runner_output)
            if self._evenkeel_errors and not self._evenkeel_has_told:
                self._tell_of_failure(outputs)
            return outputs
        self._evenkeel_verified.clear()
        # Requests that finish are removed from the scheduler afterwards.
        requests = {i: self.requests.get(i) for i in scheduler_output.num_scheduled_tokens}
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        try:
            self._watch(speculation, model_runner_output)
            facts = self._learn(speculation, scheduler_output, model_runner_output, requests)
            reports = {
                request_id: speculation.record_end(request)
                for request_id, request in requests.items()
                if request is not None and request.is_finished()
            }
            if reports and self._evenkeel_settings.reports:
                self._attach(outputs, reports, speculation)
            self._draft(speculation, scheduler_output, facts)
            if not self.running and not self.waiting:
                self._keep_answers(speculation)
        except Exception as error:
            self._stop_drafting(error)
        return outputs

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        """Keep the drafts that were set when the step's output arrived."""
        # Without ours, the GPU runner hands over placeholders without drafts.
        if self.evenkeel_speculation is None and not drafts_ahead(self.vllm_config):
            super().update_draft_token_ids(draft_token_ids)

    def make_spec_decoding_stats(
        self,
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: dict[str, int] | None,
        request_id: str,
    ) -> Any:
        """Count a verified draft where vLLM counts it, so that both counts agree."""
        drafted = num_draft_tokens - (num_invalid_spec_tokens or {}).get(request_id, 0)
        self._evenkeel_verified[request_id] = (drafted, num_accepted_tokens)
        return super().make_spec_decoding_stats(
            spec_decoding_stats,
            num_draft_tokens,
            num_accepted_tokens,
            num_invalid_spec_tokens,
            request_id,
        )

    def finish_requests(self, *args: Any, **options: Any) -> Any:
        """Finish requests from outside: an abort, or a stop string that the server found."""
        finished = super().finish_requests(*args, **options)
        speculation = self.evenkeel_speculation
        if speculation is not None:
            try:
                for request in finished:
                    speculation.record_end(request)
            except Exception as error:
                self._stop_drafting(error)
        return finished

    def shutdown(self) -> None:
        """Save the past answers, if configured, and shut vLLM's scheduler down."""
        speculation, self.evenkeel_speculation = self.evenkeel_speculation, None
        path = self._store_path()
        if self._evenkeel_writer is not None:
            self._evenkeel_writer.join()
        if speculation is not None and path is not None:
            save_store(speculation.store, path)
        super().shutdown()

    def _start_speculation(self) -> Speculation | None:
        settings = self._evenkeel_settings
        missing = [name for name in _NEEDS if not hasattr(self, name)]
        if missing:
            self._evenkeel_errors += 1
            logger.warning("speculation is off, this vLLM's scheduler lacks: %s", missing)
            return None
        if not self._can_verify():
            self._evenkeel_errors += 1
            logger.warning(
                "speculation is off: drafts for steps planned ahead need a single engine with "
                "a single stage"
            )
            return None
        if not self.num_spec_tokens:
            self._evenkeel_errors += 1
            logger.warning(
                "speculation is off: vLLM has no speculative configuration; use `--speculate "
                "auto`, which sets %s",
                SCHEDULER_CLASS,
            )
            return None
        store = None
        vocabulary = self.vllm_config.model_config.get_vocab_size()
        path = self._store_path()
        if path is not None:
            store = load_store(path, settings.store_bytes, vocabulary)
            self._evenkeel_errors += store is None and path.exists()
        max_tokens = min(settings.max_tokens, self.num_spec_tokens)
        speculation = Speculation(
            store or DraftStore(settings.store_bytes),
            GoodputController(max_tokens, Random()),
            vocabulary,
            min(settings.answer_tokens, self.num_spec_tokens),
        )
        speculation.drafts_sampled = not current_platform.is_cpu() or mend_kernels()
        return speculation

    def _keep_answers(self, speculation: Speculation) -> None:
        """Write new answers to the file, if there is one, while the engine is idle.

        Not at shutdown: vLLM stops an engine with a second signal before its scheduler is notified.
        """
        path, now_s = self._store_path(), monotonic()
        num_answers = speculation.store.num_answers
        if path is None or num_answers == self._evenkeel_kept or now_s < self._evenkeel_keep_due_s:
            return
        self._evenkeel_kept, self._evenkeel_keep_due_s = num_answers, now_s + _KEEP_INTERVAL_S
        self._evenkeel_writer = save_store_aside(speculation.store, path)

    def _store_path(self) -> Path | None:
        """The file for this engine's past answers; data-parallel engines have one each."""
        path = self._evenkeel_settings.store_file
        engine = self.parallel_config.data_parallel_index
        return path if path is None or not engine else path.with_name(f"{path.name}.{engine}")

    def _learn(
        self, speculation: Speculation, output: Any, made: Any, requests: dict[str, Any]
    ) -> StepFacts | None:
        """Record the outcome of each draft, and return the step's facts."""
        drafts = output.scheduled_spec_decode_tokens
        sampled = made.sampled_token_ids
        num_requests = len(output.num_scheduled_tokens)
        if any(request is None for request in requests.values()):
            # It finished while this step was running: the step's tokens are discarded.
            num_requests = 0
        drafted_tokens = sum(map(len, drafts.values())) if drafts else 0
        made_tokens = sum(map(len, sampled)) if sampled else 0
        for request_id in drafts:
            speculation.record_verified(request_id, self._evenkeel_verified.get(request_id))
        # A step that computes more than one token per request besides the drafts includes a prompt.
        is_pure = output.total_num_scheduled_tokens == num_requests + drafted_tokens
        if not num_requests:
            return None
        return StepFacts(num_requests, drafted_tokens, made_tokens, is_pure)

    def _draft(self, speculation: Speculation, output: Any, facts: StepFacts | None) -> None:
        if self._evenkeel_limiter is not None:
            speculation.draft_ratio = self._evenkeel_limiter.limits.draft_ratio
        decoding = [
            request
            for request in self.running
            if request.request_id in output.num_scheduled_tokens
            and not request.is_prefill_chunk
            and request.sampling_params is not None
            and self._may_draft(request)
        ]
        goes_on = bool(self.running) or bool(self.waiting)
        room = find_room(self)
        drafts = speculation.end_step(facts, decoding, goes_on, room)
        for request in decoding:
            draft = drafts.get(request.request_id)
            request.spec_token_ids = (
                self.structured_output_manager.validate_tokens(request, draft) if draft else []
            )
        if self._evenkeel_extends and len(decoding) < len(self.running):
            draft_last_chunks(self, speculation, room - sum(map(len, drafts.values())))

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        """Add parts of cached answers to the step that vLLM has planned."""
        speculation = self.evenkeel_speculation
        if speculation is not None and self._evenkeel_extends:
            try:
                draft_prompts(self, speculation, scheduler_output)
            except Exception as error:
                self._stop_drafting(error)
        super()._update_after_schedule(scheduler_output)

    def _watch(self, speculation: Speculation, made: Any) -> None:
        """Stop drafting for sampled requests once their tokens deviate from the model."""
        watched = getattr(made, WATCH_ATTRIBUTE, None)
        if watched is not None and speculation.record_watch(*watched):
            logger.error(
                "drafting stopped for sampled requests: with drafts, their tokens deviate from "
                "the model's distribution: tokens=%d log10_evidence=%.1f",
                speculation.watched_tokens,
                speculation.log_evidence / log(10),
            )

    def _sets_drafts(self) -> bool:
        return True

    def _can_verify(self) -> bool:
        """Whether vLLM verifies drafts that are set here."""
        return True

    def _may_draft(self, request: Any) -> bool:
        """Whether drafts of this request can be verified."""
        return True

    def _tell_of_failure(self, outputs: Any) -> None:
        """Report with the next finished request that drafting is off."""
        if not self._evenkeel_settings.reports:
            return
        state, index = {"errors": self._evenkeel_errors}, self.parallel_config.data_parallel_index
        report = {REPORT_KEY: encode_report(DraftReport({}, state, {}, index))}
        for of_client in outputs.values():
            for output in of_client.outputs:
                if output.finish_reason is not None and not self._evenkeel_has_told:
                    output.kv_transfer_params = (output.kv_transfer_params or {}) | report
                    self._evenkeel_has_told = True

    def _attach(
        self,
        outputs: Any,
        reports: Mapping[str, Mapping[str, DraftCounts]],
        speculation: Speculation,
    ) -> None:
        """Attach the results of a request's drafts to its last output."""
        for of_client in outputs.values():
            for output in of_client.outputs:
                counts = reports.get(output.request_id)
                if counts is None or output.finish_reason is None:
                    continue
                state = None
                if monotonic() >= self._evenkeel_state_due_s:
                    self._evenkeel_state_due_s = monotonic() + _STATE_INTERVAL_S
                    state = describe_state(speculation, self._evenkeel_errors)
                index = self.parallel_config.data_parallel_index
                report = DraftReport(counts, state, speculation.totals, index)
                encoded = {REPORT_KEY: encode_report(report)}
                output.kv_transfer_params = (output.kv_transfer_params or {}) | encoded

    def _stop_drafting(self, error: Exception) -> None:
        """Continue without drafts after the first error."""
        self.evenkeel_speculation = None
        self._evenkeel_errors += 1
        logger.error(
            "drafting stopped after an error, requests continue: %r", error, exc_info=error
        )


class AsyncSpeculativeScheduler(SpeculativeScheduler, AsyncLedgerScheduler):
    """The same for vLLM's asynchronous scheduler: a step runs while the next is drafted.

    vLLM would verify as many tokens per request as its proposer made on the GPU, where the
    scheduler knows only their number. Here a request has the drafts that were set for it, or none.
    """

    def update_draft_token_ids_in_output(self, *args: Any, **options: Any) -> None:
        """Ignore vLLM's drafts of a step, requested for requests with a grammar."""

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        super()._update_after_schedule(scheduler_output)
        for request_id in scheduler_output.num_scheduled_tokens:
            self.requests[request_id].spec_token_ids = []

    def _can_verify(self) -> bool:
        return drafts_ahead(self.vllm_config)

    def _may_draft(self, request: Any) -> bool:
        # What the grammar allows after the tokens in flight is not known yet.
        return not request.use_structured_output
