"""Explains finished requests in the exporter process: ledgers, prefix-cache use and totals."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from time import monotonic_ns

from evenkeel.error_guard import ErrorGuard
from evenkeel_runtime.exporter.energy import EnergyMeter
from evenkeel_runtime.exporter.record import FinishedRequest
from evenkeel_runtime.exporter.server_metrics import ServerMetrics
from evenkeel_runtime.exporter.step_history import StepHistory
from evenkeel_runtime.exporter.step_reader import DEFAULT_WAIT_S, StepReader
from evenkeel_runtime.exporter.why_answers import WhyStore
from evenkeel_runtime.ledger.attribution import Ledger, RequestTimes
from evenkeel_runtime.ledger.explanation import Explanation, describe
from evenkeel_runtime.ledger.prefix_explanation import PrefixExplainer
from evenkeel_runtime.wire.observation import Observation
from evenkeel_runtime.wire.snapshot import EngineFigures, Exemplar, Histogram, Snapshot

logger = logging.getLogger(__name__)

MAX_BYTES = 64 * 1024 * 1024
MAX_REQUESTS = 50_000
# The engine releases a disconnected client's request after the current step, which may be long.
_ABORT_WAIT_S = 1.0
_ANSWER_TIMEOUT_S = 5.0
# Seconds; they include the article's and the usual TTFT targets.
_LATENCY_BOUNDS_S = (0.05, 0.1, 0.2, 0.4, 0.5, 0.8, 1.0, 2.0, 5.0, 10.0, 30.0)


class Explainer:
    """Explains requests from the engine's steps; its errors never lose a span.

    Args:
        reader: Provides the steps; None if this vLLM provides none.
        store: Stores the explanations for `/why`.
    """

    def __init__(self, reader: StepReader | None, store: WhyStore) -> None:
        self._reader = reader
        self._store = store
        self._prefix = PrefixExplainer()
        self._seconds: Counter[str] = Counter()
        self._ttft = Histogram(_LATENCY_BOUNDS_S)
        self._e2e = Histogram(_LATENCY_BOUNDS_S)
        self._server = ServerMetrics()
        self._errors = ErrorGuard(
            logger.error,
            "cannot explain requests (spans are still sent); further ones are only counted: %r",
        )
        self._lock = threading.Lock()

    def explain(self, requests: Sequence[FinishedRequest]) -> None:
        """Set the explanation of each request; None if the engine has no records of it."""
        asked = [self._ask(request) for request in requests]
        for request, answer in zip(requests, asked, strict=True):
            request.explanation = self._explain(request.seen, answer)
            if self._reader is not None and not _has_records(request.seen):
                request.seen.engine_s = request.seen.energy_j = 0.0

    def keep(self, request: FinishedRequest) -> None:
        """Count a complete request, and store its explanation for `/why`."""
        try:
            seen, trace, span = request.seen, request.trace_id.hex(), request.span_id.hex()
            self._store.put(
                seen.request_id, seen.tenant, describe(seen, request.explanation, trace)
            )
            time_s = (seen.arrival_unix_ns + seen.end_ns - seen.arrival_ns) / 1e9
            with self._lock:
                for histogram, value in ((self._ttft, seen.ttft_s), (self._e2e, seen.e2e_s)):
                    if value is not None:
                        histogram.add(Exemplar(value, trace, span, time_s))
                self._server.add(seen)
        except Exception as error:
            self._errors.record(error)

    def read_snapshot(self, dropped_runs: int = 0) -> Snapshot:
        """Return the engine and ledger figures for `/metrics`."""
        reader = self._reader
        counts = None if reader is None else reader.read_counts()
        with self._lock:
            return Snapshot(
                engines=() if reader is None else reader.read(read_figures),
                lost_steps=0 if counts is None else counts.lost_steps,
                dropped_runs=dropped_runs,
                ledgers=0 if counts is None else counts.ledgers,
                unmatched=0 if counts is None else counts.unmatched,
                errors=self._errors.num_errors + (0 if counts is None else counts.internal_errors),
                ledger_seconds=dict(self._seconds),
                prefix_misses=dict(self._prefix.num_by_miss),
                prefix_missed_tokens=dict(self._prefix.missed_tokens_by_miss),
                unstable_prompts=self._prefix.num_unstable,
                ttft=self._ttft,
                e2e=self._e2e,
                server=self._server.read(),
            )

    def _ask(self, request: FinishedRequest) -> Future[Ledger | None] | None:
        seen = request.seen
        if self._reader is None or not _has_records(seen):
            return None
        times = RequestTimes(
            arrival_ns=seen.arrival_ns,
            end_ns=seen.end_ns,
            first_token_ns=request.phases.first_ns,
            last_token_ns=request.phases.last_ns,
            submitted_ns=seen.submitted_ns,
            client_left_ns=seen.client_left_ns,
            holds=seen.holds,
        )
        wait_s = DEFAULT_WAIT_S if seen.client_left_ns is None else _ABORT_WAIT_S
        return self._reader.ask_ledger(seen.request_id, times, seen.num_sequences, wait_s=wait_s)

    def _explain(
        self, seen: Observation, asked: Future[Ledger | None] | None
    ) -> Explanation | None:
        try:
            ledger = None if asked is None else asked.result(_ANSWER_TIMEOUT_S)
            if ledger is None:
                return None
            with self._lock:
                self._seconds.update(ledger.seconds)
                return Explanation(ledger, self._prefix.explain(seen, ledger))
        except Exception as error:
            self._errors.record(error)
            return None


def _has_records(seen: Observation) -> bool:
    """Whether the engine got the request."""
    return seen.reached_engine and seen.submitted_ns is not None


def read_figures(histories: Mapping[int, StepHistory]) -> list[EngineFigures]:
    """Return the figures of each engine that has sent at least one step."""
    figures = []
    for number, history in sorted(histories.items()):
        row = history.latest
        if row is None:
            continue
        totals, is_idle = history.totals, not history.num_live
        spent = history.account.read(monotonic_ns())
        figures.append(
            EngineFigures(
                engine=number,
                # The last step's record does not include the requests that ended with it.
                num_batched=0 if is_idle else history.runs.last_batched,
                num_running=0 if is_idle else int(row["num_running"]),
                num_waiting=0 if is_idle else int(row["num_waiting"]),
                blocks_live=0 if is_idle else int(row["blocks_total"]) - int(row["blocks_free"]),
                blocks_resident=int(row["blocks_cached"]),
                blocks_total=int(row["blocks_total"]),
                num_steps=totals.num_steps,
                step_seconds=totals.seconds,
                steps_by_duration=tuple(totals.by_duration),
                prefill_tokens=totals.prefill_tokens,
                decode_tokens=totals.decode_tokens,
                drafted_tokens=totals.drafted_tokens,
                accepted_tokens=totals.accepted_tokens,
                prompt_tokens=totals.prompt_tokens,
                cached_tokens=totals.cached_tokens,
                num_preempted=totals.num_preempted,
                recent_step_s=totals.recent_step_s,
                recent_acceptance_ratio=totals.recent_acceptance_ratio,
                recent_hit_ratio=totals.recent_hit_ratio,
                cost_error_ratio=history.cost.error_ratio,
                seconds_by_kind={
                    "requests": spent.requests_s,
                    "other": spent.other_s,
                    "between": spent.between_s,
                    "idle": spent.idle_s,
                    "unrecorded": spent.unrecorded_s,
                },
                joules_by_kind=_joules(history.meter),
            )
        )
    return figures


def _joules(meter: EnergyMeter | None) -> dict[str, float]:
    used = None if meter is None else meter.total(monotonic_ns())
    if used is None:
        return {}
    return {"requests": used.requests_j, "idle": used.idle_j, "between": used.between_j}
