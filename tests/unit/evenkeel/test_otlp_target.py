"""The standard OTEL_* variables, and what wins over what."""

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.otlp_target import (
    OtlpTarget,
    is_export_enabled,
    read_http_target,
    read_resource,
    read_target,
)


@pytest.mark.parametrize(
    ("otel", "endpoint", "url"),
    [
        pytest.param({}, None, "http://127.0.0.1:4318/v1/traces", id="default"),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c:4318/"},
            None,
            "https://c:4318/v1/traces",
            id="the general endpoint gets the path",
        ),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/custom"},
            None,
            "http://c/custom",
            id="the one for traces is used as it is",
        ),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/custom"},
            "http://flag:4318",
            "http://flag:4318/v1/traces",
            id="the flag wins",
        ),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, None, "http://127.0.0.1:4317", id="gRPC"
        ),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
            None,
            "http://127.0.0.1:4318/v1/traces",
            id="empty is not set",
        ),
    ],
)
def test_endpoints(otel: dict[str, str], endpoint: str | None, url: str) -> None:
    assert read_target(otel, endpoint).url == url


def test_a_sender_with_an_address_of_its_own_takes_headers_and_certificate() -> None:
    otel = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://elsewhere:4317",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20abc",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": "/ca.pem",
    }
    assert read_http_target(otel, "https://c:4318") == OtlpTarget(
        url="https://c:4318/v1/traces",
        headers={"authorization": "Bearer abc"},
        certificate="/ca.pem",
        resource={"service.name": "evenkeel-runtime"},
    )


def test_every_variable_is_read() -> None:
    target = read_target(
        {
            "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20abc, x-org = 1",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": "/ca.pem",
            "OTEL_SERVICE_NAME": "chat",
        }
    )
    assert target == OtlpTarget(
        url="http://127.0.0.1:4318/v1/traces",
        headers={"authorization": "Bearer abc", "x-org": "1"},
        timeout_s=2.5,
        is_compressed=True,
        certificate="/ca.pem",
        resource={"service.name": "chat"},
    )


def test_the_service_name_wins_over_the_resource_attributes() -> None:
    attributes = "service.name=a,deployment.environment.name=prod%2Feu"
    assert read_resource({"OTEL_RESOURCE_ATTRIBUTES": attributes}) == {
        "service.name": "a",
        "deployment.environment.name": "prod/eu",
    }
    both = {"OTEL_RESOURCE_ATTRIBUTES": attributes, "OTEL_SERVICE_NAME": "b"}
    assert read_resource(both)["service.name"] == "b"
    assert read_resource({})["service.name"] == "evenkeel-runtime"


@pytest.mark.parametrize(
    "otel",
    [
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"}, id="no scheme"),
        pytest.param({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, id="a protocol we lack"),
        pytest.param({"OTEL_EXPORTER_OTLP_COMPRESSION": "zstd"}, id="a compression we lack"),
        pytest.param({"OTEL_RESOURCE_ATTRIBUTES": "abc"}, id="an attribute without a value"),
        pytest.param({"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, id="a timeout that is no number"),
    ],
)
def test_a_malformed_variable_is_refused_at_the_start(otel: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(otel.values())).split(":")[0]):
        read_target(otel)


@pytest.mark.parametrize(
    ("otel", "is_on"),
    [
        pytest.param({}, True, id="on by default"),
        pytest.param({"OTEL_SDK_DISABLED": "True"}, False, id="the SDK is disabled"),
        pytest.param({"OTEL_TRACES_EXPORTER": "none"}, False, id="no exporter"),
        pytest.param({"OTEL_TRACES_EXPORTER": "otlp"}, True, id="OTLP"),
    ],
)
def test_switching_it_off(otel: dict[str, str], is_on: bool) -> None:
    assert is_export_enabled(otel) is is_on


def test_a_header_without_a_value_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigurationError, match="HEADERS: an item is not name=value") as refused:
        read_target({"OTEL_EXPORTER_OTLP_HEADERS": "s3cret"})
    assert "s3cret" not in str(refused.value)


FOR_METRICS = {
    "beside the traces": ({}, "http://127.0.0.1:4318/v1/metrics"),
    "below a path": (
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c/otlp"}, "https://c/otlp/v1/metrics",
    ),
    "over gRPC, the same address": (
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http://127.0.0.1:4317",
    ),
    "none beside an address for traces only": (
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/custom"}, None,
    ),
    "none if switched off": ({"OTEL_METRICS_EXPORTER": "none"}, None),
}  # fmt: skip


@pytest.mark.parametrize(("otel", "url"), FOR_METRICS.values(), ids=FOR_METRICS)
def test_where_metrics_go(otel: dict[str, str], url: str | None) -> None:
    target = read_target(otel).for_metrics()
    assert (None if target is None else target.url) == url
    assert target is None or target.signal == "metrics"


@pytest.mark.parametrize("url", ["http://collector:port", "http://[::1", "http://c:99999"])
def test_an_address_that_no_sender_can_use_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="OTLP endpoint is"):
        read_target({}, url)


@pytest.mark.parametrize(("protocol", "port"), [("grpc", 4317), ("http/protobuf", 4318)])
def test_the_example_of_an_address_has_the_protocols_port(protocol: str, port: int) -> None:
    otel = {"OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_EXPORTER_OTLP_ENDPOINT": "collector"}
    with pytest.raises(ConfigurationError, match=f"such as http://127.0.0.1:{port}$"):
        read_target(otel)
