"""Sends how many requests are in the engine, and have stalled, to the collector as OTLP gauges."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic_ns, time_ns

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from evenkeel.otlp_sender import Send
from evenkeel.otlp_target import OtlpTarget
from evenkeel.spans import SCOPE_NAME
from evenkeel_runtime.exporter.otlp import own_version, set_attributes
from evenkeel_runtime.wire.in_flight import IN_FLIGHT_GAUGES, InFlight, gauge_values

logger = logging.getLogger(__name__)


class InFlightExport:
    """Sends readings; one that cannot be sent is dropped, because the next replaces it.

    An idle server sends one last reading, of no requests. A receiver that rejects metrics gets no
    more of them.

    Args:
        read: Returns the latest reading; None before the first.
        target: Where to send them.
        send: Sends one body.
    """

    def __init__(self, read: Callable[[], InFlight | None], target: OtlpTarget, send: Send) -> None:
        self._read = read
        self._target = target
        self._send = send
        self._sent_ns = 0
        self._was_idle = True
        self._is_refused = False

    def export(self) -> None:
        """Send the latest reading if it is new."""
        reading = self._read()
        if self._is_refused or reading is None or reading.read_ns == self._sent_ns:
            return
        is_idle = not any(model.num_running for model in reading.models.values())
        if is_idle and self._was_idle:
            return
        self._sent_ns = reading.read_ns
        body = build_gauges(reading, self._target, time_ns() - monotonic_ns())
        outcome = self._send(body.SerializeToString(), 1)
        if not outcome.is_done:
            return
        self._was_idle = is_idle
        if outcome.num_rejected:
            self._is_refused = True
            logger.warning(
                "the receiver takes no metrics; requests in flight are on /metrics only: "
                "url=%s reason=%s",
                self._target.shown_url,
                outcome.reason or "partial success",
            )


def build_gauges(
    reading: InFlight, target: OtlpTarget, unix_offset_ns: int
) -> ExportMetricsServiceRequest:
    """Return the reading as OTLP gauges, under the names they have on `/metrics`."""
    request = ExportMetricsServiceRequest()
    resource_metrics = request.resource_metrics.add()
    set_attributes(resource_metrics.resource, target.resource)
    scope_metrics = resource_metrics.scope_metrics.add()
    scope_metrics.scope.name = SCOPE_NAME
    scope_metrics.scope.version = own_version()
    for gauge in IN_FLIGHT_GAUGES:
        metric = scope_metrics.metrics.add()
        metric.name, metric.unit, metric.description = gauge.name, gauge.unit, gauge.meaning
        for labels, value in gauge_values(gauge, reading):
            point = metric.gauge.data_points.add()
            point.time_unix_nano = reading.read_ns + unix_offset_ns
            point.as_double = value
            set_attributes(point, labels)
    return request
