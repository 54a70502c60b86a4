"""The OTLP gauges of the requests in the engine."""

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from evenkeel.otlp_sender import Delivery
from evenkeel.otlp_target import OtlpTarget
from evenkeel_runtime.exporter.in_flight_export import InFlightExport
from evenkeel_runtime.wire.in_flight import NEXT_TOKEN, InFlight, ModelInFlight

TARGET = OtlpTarget("http://u:s3cret@127.0.0.1:4318/v1/metrics", resource={"service.name": "s"})
DONE = Delivery(is_done=True)


class Receiver:
    """Keeps what it is sent and answers as told."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.answer = DONE

    def send(self, body: bytes, _: int) -> Delivery:
        self.bodies.append(body)
        return self.answer


def reading(at_ns: int, num_running: int, stalled: int = 0) -> InFlight:
    model = ModelInFlight(num_running)
    model.num_stalled[NEXT_TOKEN] = stalled
    return InFlight(at_ns, {"m": model})


def test_a_reading_is_sent_under_the_names_of_the_metrics_page() -> None:
    receiver = Receiver()
    InFlightExport(lambda: reading(5, 3, 1), TARGET, receiver.send).export()
    (resource,) = ExportMetricsServiceRequest.FromString(receiver.bodies[0]).resource_metrics
    values = {
        (metric.name, *sorted(a.value.string_value for a in point.attributes)): point.as_double
        for metric in resource.scope_metrics[0].metrics
        for point in metric.gauge.data_points
    }
    assert values["evenkeel_runtime_requests_in_flight", "m"] == 3
    assert values["evenkeel_runtime_stalled_requests", "m", "next_token"] == 1
    assert values["evenkeel_runtime_stalled_requests", "first_token", "m"] == 0
    assert values["evenkeel_runtime_longest_wait_seconds", "m", "next_token"] == 0
    assert resource.resource.attributes[0].value.string_value == "s"


def test_an_idle_server_sends_one_last_reading() -> None:
    receiver, readings = Receiver(), [reading(n, running) for n, running in enumerate((0, 2, 0, 0))]
    latest: list[InFlight | None] = [None]
    export = InFlightExport(lambda: latest[0], TARGET, receiver.send)
    export.export()
    sent = []
    for each in readings:
        latest[0] = each
        export.export()
        export.export()
        sent.append(len(receiver.bodies))
    assert sent == [0, 1, 2, 2]


def test_the_last_reading_is_sent_again_until_it_arrives() -> None:
    receiver = Receiver()
    latest = [reading(1, 1)]
    export = InFlightExport(lambda: latest[0], TARGET, receiver.send)
    export.export()
    receiver.answer = Delivery(is_done=False, reason="ConnectError")
    latest[0] = reading(2, 0)
    export.export()
    receiver.answer, latest[0] = DONE, reading(3, 0)
    export.export()
    latest[0] = reading(4, 0)
    export.export()
    assert len(receiver.bodies) == 3


def test_a_receiver_without_metrics_gets_no_more(caplog: pytest.LogCaptureFixture) -> None:
    receiver = Receiver()
    receiver.answer = Delivery(is_done=True, num_rejected=1, reason="HTTP 404")
    latest = [reading(1, 1)]
    export = InFlightExport(lambda: latest[0], TARGET, receiver.send)
    export.export()
    latest[0] = reading(2, 1)
    export.export()
    assert len(receiver.bodies) == 1
    assert "takes no metrics" in caplog.text and "http://127.0.0.1:4318" in caplog.text
    assert "s3cret" not in caplog.text
