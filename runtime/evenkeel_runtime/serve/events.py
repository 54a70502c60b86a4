"""Send the runtime's own actions, such as a control step, as separate spans.

Such events are rare, so they use the OpenTelemetry SDK instead of the exporter process.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind
from opentelemetry.util.types import AttributeValue

from evenkeel.otlp_sender import open_sender
from evenkeel.otlp_target import OtlpTarget
from evenkeel.retry_delay import RetryDelay
from evenkeel.spans import SCOPE_NAME

_MAX_WAITING = 1024
_LONGEST_WAIT_S = 5.0


class EventSender:
    """Sends events in the background; they never delay or fail a request.

    While the collector is down, the last thousand events are kept.

    Args:
        target: Destination of the spans.
    """

    def __init__(self, target: OtlpTarget) -> None:
        self._provider = TracerProvider(
            resource=Resource(dict(target.resource)), shutdown_on_exit=False
        )
        self._exporter = PatientExporter(target)
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter, max_queue_size=_MAX_WAITING, schedule_delay_millis=500
            )
        )
        self._tracer = self._provider.get_tracer(SCOPE_NAME)

    def send(
        self, name: str, attributes: Mapping[str, AttributeValue], start_ns: int, end_ns: int
    ) -> None:
        """Queue one event.

        Args:
            name: The span's name.
            attributes: The span's attributes.
            start_ns: When it began, as Unix time.
            end_ns: When its effect was known, as Unix time.
        """
        span = self._tracer.start_span(
            name, kind=SpanKind.INTERNAL, attributes=attributes, start_time=start_ns
        )
        span.end(end_ns)

    def close(self) -> None:
        """Send the queued events, without retries."""
        self._exporter.hurry()
        self._provider.shutdown()


class PatientExporter(SpanExporter):
    """Retries a batch until it is accepted or rejected, as for request spans."""

    def __init__(self, target: OtlpTarget) -> None:
        self._send = open_sender(target)
        self._is_closing = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send one batch; blocks only the sending thread."""
        body = encode_spans(spans).SerializeToString()
        delay = RetryDelay(0.25, _LONGEST_WAIT_S)
        while True:
            outcome = self._send(body, len(spans))
            if outcome.is_done:
                is_taken = not outcome.num_rejected
                return SpanExportResult.SUCCESS if is_taken else SpanExportResult.FAILURE
            if self._is_closing.wait(delay.next_s(outcome.retry_after_s)):
                return SpanExportResult.FAILURE

    def hurry(self) -> None:
        """Stop retrying batches from now on."""
        self._is_closing.set()

    def shutdown(self) -> None:
        """Stop trying."""
        self.hurry()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: nothing is buffered here."""
        return True
