"""Sends runs of engine steps to the collector: one span per second and engine, a row per run."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from secrets import token_bytes
from time import monotonic_ns, time_ns

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel.otlp_sender import Send
from evenkeel.otlp_target import OtlpTarget
from evenkeel.spans import REQUEST_MODEL, SCOPE_NAME, SPAN_ENGINE_STEPS, AttributeValue
from evenkeel_runtime.exporter.otlp import own_version, set_attributes
from evenkeel_runtime.exporter.step_reader import StepReader
from evenkeel_runtime.exporter.step_runs import StepRun, describe_held

logger = logging.getLogger(__name__)

PREFIX = "evenkeel.steps."
_ENGINE = "evenkeel.engine.index"
# Bodies kept while the collector is down: one minute of them.
_MAX_WAITING = 60
_MAX_RUNS_A_SPAN = 512
# opentelemetry.proto.trace.v1.Span.SpanKind.
_KIND_INTERNAL = 1
# Attribute of each column; integer columns use the run's field names.
_COUNTS = (
    "num_steps",
    "num_batched",
    "num_running",
    "num_waiting",
    "num_set_aside",
    "prefill_tokens",
    "decode_tokens",
    "drafted_tokens",
    "accepted_tokens",
    "emitted_tokens",
    "num_preempted",
    "blocks_live",
    "blocks_resident",
    "blocks_total",
)


class StepExport:
    """Sends the reader's runs of steps; runs that cannot be sent are dropped and counted.

    Args:
        reader: Provides the runs.
        target: Where to send them.
        model: The served model name.
        send: Sends one body with the given number of spans.
    """

    def __init__(self, reader: StepReader, target: OtlpTarget, model: str, send: Send) -> None:
        self._reader = reader
        self._target = target
        self._model = model
        self._send = send
        self._waiting: deque[tuple[bytes, int]] = deque()
        self.num_dropped = 0

    def export(self) -> None:
        """Send the runs since the last call, and those that the collector did not accept before."""
        runs_of = {engine: runs for engine, runs in self._reader.take_runs().items() if runs}
        if runs_of:
            body = build_steps(runs_of, self._target, self._model, time_ns() - monotonic_ns())
            num_runs = sum(map(len, runs_of.values()))
            self._waiting.append((body.SerializeToString(), num_runs))
        while len(self._waiting) > _MAX_WAITING:
            self.num_dropped += self._waiting.popleft()[1]
        while self._waiting:
            body_bytes, num_runs = self._waiting[0]
            outcome = self._send(body_bytes, 1)
            if not outcome.is_done:
                return
            self._waiting.popleft()
            if outcome.num_rejected:
                self.num_dropped += num_runs


def build_steps(
    runs_of: dict[int, list[StepRun]], target: OtlpTarget, model: str, unix_offset_ns: int
) -> ExportTraceServiceRequest:
    """Return one span per engine (several if it has many runs) with the runs as parallel lists.

    Args:
        runs_of: The runs of each engine; none of them empty.
        target: Identifies the sender.
        model: The served model name.
        unix_offset_ns: Offset to add to monotonic times.
    """
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    set_attributes(resource_spans.resource, target.resource)
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = SCOPE_NAME
    scope_spans.scope.version = own_version()
    for engine, runs in _portions(runs_of):
        span = scope_spans.spans.add()
        span.trace_id, span.span_id = token_bytes(16), token_bytes(8)
        span.name = SPAN_ENGINE_STEPS
        span.kind = _KIND_INTERNAL
        span.start_time_unix_nano = runs[0].start_ns + unix_offset_ns
        span.end_time_unix_nano = runs[-1].end_ns + unix_offset_ns
        set_attributes(span, {_ENGINE: engine, REQUEST_MODEL: model})
        set_attributes(span, describe_runs(runs))
    return request


def _portions(runs_of: dict[int, list[StepRun]]) -> Iterator[tuple[int, list[StepRun]]]:
    """Split long lists: one span of many runs costs the store more than several small ones."""
    for engine, runs in runs_of.items():
        for start in range(0, len(runs), _MAX_RUNS_A_SPAN):
            yield engine, runs[start : start + _MAX_RUNS_A_SPAN]


def describe_runs(runs: Sequence[StepRun]) -> dict[str, AttributeValue]:
    """Return the runs as span attributes: one list per column, times in seconds since the first."""
    start_ns = runs[0].start_ns
    columns: dict[str, AttributeValue] = {
        "start_s": [(run.start_ns - start_ns) / 1e9 for run in runs],
        "duration_s": [(run.end_ns - run.start_ns) / 1e9 for run in runs],
        "busy_s": [run.busy_ns / 1e9 for run in runs],
        "longest_s": [run.longest_ns / 1e9 for run in runs],
        "held_by": [describe_held(run.held_by) for run in runs],
    }
    for name in _COUNTS:
        columns[name] = [getattr(run, name) for run in runs]
    named = [(place, *each) for place, run in enumerate(runs) for each in run.prefilling]
    if named:
        columns["prefilling_run"] = [place for place, _, _ in named]
        columns["prefilling_id"] = [request_id for _, request_id, _ in named]
        columns["prefilling_tokens"] = [tokens for _, _, tokens in named]
    return {PREFIX + name: values for name, values in columns.items()}
