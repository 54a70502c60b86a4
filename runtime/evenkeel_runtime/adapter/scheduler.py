"""The step hook: a vLLM scheduler that records each engine step (read for vLLM 0.32).

The first of our two subclasses of vLLM's scheduler: speculative_scheduler.py adds drafts. Start
vLLM with `--scheduler-cls evenkeel_runtime.adapter.scheduler.LedgerScheduler`, under synchronous or
asynchronous scheduling, and with `EVENKEEL_STEPS_SOCKET` in the environment. What vLLM schedules
is never changed: the hook reads each step after vLLM has planned it and after its output is back.
If this vLLM lacks what the hook reads, or the hook fails, scheduling continues as vLLM's own, with
one warning.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from time import monotonic_ns
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from evenkeel.settings import load
from evenkeel_runtime.engine.limits import DraftLimits, StepLimiter
from evenkeel_runtime.engine.parent_guard import end_with_parent
from evenkeel_runtime.engine.recorder import StepRecorder, count_emitted, find_missing
from evenkeel_runtime.engine.sender import StepSender
from evenkeel_runtime.engine.settings import SOCKET_VARIABLE, StepSettings
from evenkeel_runtime.wire.steps import Held

logger = logging.getLogger(__name__)


_REASON_OF_STATUS = {
    RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR: Held.GRAMMAR,
    RequestStatus.WAITING_FOR_REMOTE_KVS: Held.REMOTE_KV,
}


class LedgerScheduler(Scheduler):  # type: ignore[misc]
    """vLLM's scheduler with each step recorded; asynchronous if vLLM is configured so."""

    _evenkeel_recorder: StepRecorder | None = None
    _evenkeel_limiter: StepLimiter | None = None
    _evenkeel_drafts: DraftLimits | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> LedgerScheduler:
        """Return the variant for this configuration: vLLM knows one class name for both."""
        config = kwargs["vllm_config"] if "vllm_config" in kwargs else args[0]
        if config.scheduler_config.async_scheduling and not issubclass(cls, AsyncScheduler):
            cls = AsyncLedgerScheduler
        instance: LedgerScheduler = super().__new__(cls)
        return instance

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        try:
            self._evenkeel_limiter = self._start_limiter()
            self._evenkeel_drafts = DraftLimits(self._sets_drafts())
            self._evenkeel_recorder = self._start_recorder()
        except Exception as error:
            self._give_up(error)

    def add_request(self, request: Any) -> None:
        """Add a request, and record when."""
        super().add_request(request)
        if self._evenkeel_drafts is not None:
            self._evenkeel_drafts.add(request)
        if self._evenkeel_recorder is not None:
            try:
                self._evenkeel_recorder.record_arrival(request)
            except Exception as error:
                self._give_up(error)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Schedule a step, and record its contents."""
        if self._evenkeel_limiter is not None:
            self._evenkeel_limiter.apply()
        if self._evenkeel_drafts is not None:
            self._evenkeel_drafts.apply(self.requests)
        start_ns = monotonic_ns()
        output = super().schedule(*args, **kwargs)
        if self._evenkeel_recorder is not None:
            try:
                self._evenkeel_recorder.record_scheduled(output, start_ns)
            except Exception as error:
                self._give_up(error)
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Process a step's output, and record the step."""
        emitted: list[int] = []
        if self._evenkeel_recorder is not None:
            try:
                emitted = count_emitted(model_runner_output)
            except Exception as error:
                self._give_up(error)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        if self._evenkeel_recorder is not None:
            try:
                self._evenkeel_recorder.record_completed(
                    scheduler_output, model_runner_output.req_ids, emitted
                )
            except Exception as error:
                self._give_up(error)
        return outputs

    def finish_requests(self, *args: Any, **kwargs: Any) -> Any:
        """Finish requests from outside (an abort), and record that they left."""
        finished = super().finish_requests(*args, **kwargs)
        if self._evenkeel_recorder is not None:
            try:
                self._evenkeel_recorder.record_left(request.request_id for request in finished)
            except Exception as error:
                self._give_up(error)
        return finished

    def shutdown(self) -> None:
        """Send the last records and shut vLLM's scheduler down."""
        recorder, self._evenkeel_recorder = self._evenkeel_recorder, None
        try:
            if recorder is not None:
                recorder.close()
        except Exception as error:
            self._give_up(error)
        finally:
            super().shutdown()

    def _sets_drafts(self) -> bool:
        """Whether a request's drafts are token ids that may be cut, not placeholders."""
        return True

    def _start_limiter(self) -> StepLimiter | None:
        path = load(StepSettings, {}).settings.limits_file
        if path is None:
            return None
        try:
            return StepLimiter(self, path)
        except (OSError, AttributeError) as error:
            logger.warning("control cannot limit engine steps: %r", error)
            return None

    def _start_recorder(self) -> StepRecorder | None:
        settings = load(StepSettings, {}).settings
        end_with_parent()
        if settings.socket is None:
            logger.warning("engine steps are not recorded: %s is not set", SOCKET_VARIABLE)
            return None
        missing = find_missing(self)
        if missing:
            logger.warning(
                "engine steps are not recorded, this vLLM's scheduler lacks: %s",
                ", ".join(missing),
            )
            return None
        sender = StepSender(
            settings.socket,
            self.parallel_config.data_parallel_index,
            settings.interval_s,
            settings.queue_batches,
        )
        return StepRecorder(self, sender, settings.seen_blocks, _REASON_OF_STATUS)

    def _give_up(self, error: Exception) -> None:
        """Continue as vLLM's own scheduler after the first error."""
        recorder, self._evenkeel_recorder = self._evenkeel_recorder, None
        logger.error(
            "engine step recording stopped after an error, requests continue: %r",
            error,
            exc_info=error,
        )
        if recorder is not None:
            # The failed record would fail to pack again.
            with suppress(Exception):
                recorder.close()


class AsyncLedgerScheduler(LedgerScheduler, AsyncScheduler):  # type: ignore[misc]
    """The same for vLLM's asynchronous scheduler, which plans a step while another runs."""

    def _sets_drafts(self) -> bool:
        # vLLM's own proposer drafts on the GPU; the scheduler has placeholders.
        return False
