from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from evenkeel_collector.intake.metric_points import GAUGE, Point
from evenkeel_collector.intake.metric_redaction import redact_metrics, redact_points
from evenkeel_collector.redaction.field_redactor import Redactor
from evenkeel_collector.redaction.field_rules import load_rules
from tests.fixtures.otlp_payload import key_values

REDACTOR = Redactor(load_rules(None), None)
KINDS = ("gauge", "sum", "histogram", "exponential_histogram", "summary")


def request(kind: str, attributes: Mapping[str, Any], name: str = "m") -> Any:
    message = ExportMetricsServiceRequest()
    resource_metrics = message.resource_metrics.add()
    resource_metrics.resource.attributes.extend(key_values(attributes))
    metric = resource_metrics.scope_metrics.add().metrics.add(name=name)
    getattr(metric, kind).data_points.add(attributes=key_values(attributes))
    return message


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_metric_loses_its_secrets(kind: str) -> None:
    secret = {"user": "ana@example.org", "password": "hunter2", "deep": {"password": "x"}, "n": 1}
    message = request(kind, secret, name="mails of ana@example.org")
    counts = redact_metrics(message, REDACTOR, None)
    assert sum(counts.values()) >= 5
    text = str(message)
    assert "example.org" not in text and "hunter2" not in text
    (metric,) = message.resource_metrics[0].scope_metrics[0].metrics
    assert metric.name == "mails of [email]"
    (point,) = getattr(metric, kind).data_points
    assert {pair.key for pair in point.attributes} >= {"user", "n"}


def test_what_holds_no_secret_is_left_as_it_is() -> None:
    message = request("gauge", {"model": "support", "gpu": 3})
    before = message.SerializeToString()
    assert redact_metrics(message, REDACTOR, None) == {}
    assert message.SerializeToString() == before


def test_scraped_labels_lose_their_secrets() -> None:
    points = [
        Point("m", 1, GAUGE, value=1.0, attributes={"user": "ana@example.org"}),
        Point("m", 1, GAUGE, value=2.0, attributes={"model": "support"}),
    ]
    redacted = redact_points(points, REDACTOR)
    assert [dict(point.attributes) for point in redacted.points] == [
        {"user": "[email]"}, {"model": "support"},
    ]  # fmt: skip
    assert sum(redacted.counts.values()) == 1
    assert [point.value for point in redacted.points] == [1.0, 2.0]
