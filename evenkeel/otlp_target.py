"""The span receiver and resource name set by the standard `OTEL_*` variables.

Source: OpenTelemetry specification, "OpenTelemetry Protocol Exporter" and "Environment Variables".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import unquote, urlsplit

from evenkeel.errors import ConfigurationError
from evenkeel.http_address import check_http_address
from evenkeel.secret_text import hide_password

DEFAULT_ENDPOINT = "http://127.0.0.1:4318"
DEFAULT_GRPC_ENDPOINT = "http://127.0.0.1:4317"
DEFAULT_SERVICE_NAME = "evenkeel-runtime"
PROTOCOL_HTTP = "http/protobuf"
PROTOCOL_GRPC = "grpc"


TRACES, METRICS = "traces", "metrics"


@dataclass(frozen=True, slots=True)
class OtlpTarget:
    """One OTLP receiver, and the resource that sends to it.

    Attributes:
        url: The full address, including `/v1/traces` for HTTP.
        protocol: `http/protobuf` or `grpc`.
        headers: Sent with each export.
        timeout_s: How long one export may take.
        is_compressed: Whether bodies are sent as gzip.
        certificate: CA file to trust instead of the system's.
        resource: Attributes of the sender.
        signal: `traces` or `metrics`.
        has_metrics: Whether the receiver may be sent metrics as well.
    """

    url: str
    protocol: str = PROTOCOL_HTTP
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 10.0
    is_compressed: bool = False
    certificate: str | None = None
    resource: Mapping[str, str] = field(default_factory=dict)
    signal: str = TRACES
    has_metrics: bool = True

    @property
    def shown_url(self) -> str:
        """The address without its user and password, for messages and logs."""
        return hide_password(self.url)

    def for_metrics(self) -> OtlpTarget | None:
        """Return the same receiver's target for metrics; None if it is to be sent none.

        There is none where only the address for traces is known.
        """
        if not self.has_metrics:
            return None
        if self.protocol == PROTOCOL_GRPC:
            return replace(self, signal=METRICS)
        base, path, _ = self.url.rpartition("/v1/traces")
        return replace(self, url=f"{base}/v1/metrics", signal=METRICS) if path else None


def is_export_enabled(otel: Mapping[str, str]) -> bool:
    """Return whether `OTEL_SDK_DISABLED` and `OTEL_TRACES_EXPORTER` leave export enabled."""
    exporters = otel.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    return otel.get("OTEL_SDK_DISABLED", "").strip().lower() != "true" and exporters != "none"


def read_target(otel: Mapping[str, str], endpoint: str | None = None) -> OtlpTarget:
    """Return the target the variables describe; `endpoint` overrides their endpoints.

    Raises:
        ConfigurationError: If a variable or the endpoint is malformed or not supported.
    """
    protocol = _signal(otel, "PROTOCOL") or PROTOCOL_HTTP
    if protocol not in (PROTOCOL_HTTP, PROTOCOL_GRPC):
        raise ConfigurationError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}, expected {PROTOCOL_HTTP} or "
            f"{PROTOCOL_GRPC}"
        )
    compression = _signal(otel, "COMPRESSION") or "none"
    if compression not in ("none", "gzip"):
        raise ConfigurationError(
            f"OTEL_EXPORTER_OTLP_COMPRESSION is {compression!r}, expected none or gzip"
        )
    return OtlpTarget(
        url=_url(otel, endpoint, protocol),
        protocol=protocol,
        headers=_pairs(_signal(otel, "HEADERS"), "OTEL_EXPORTER_OTLP_HEADERS", lower=True),
        timeout_s=_seconds(_signal(otel, "TIMEOUT")),
        is_compressed=compression == "gzip",
        certificate=_signal(otel, "CERTIFICATE"),
        resource=read_resource(otel),
        has_metrics=otel.get("OTEL_METRICS_EXPORTER", "").strip().lower() != "none",
    )


def read_http_target(otel: Mapping[str, str], endpoint: str) -> OtlpTarget:
    """Return the OTLP/HTTP receiver at an address, with the variables' headers and certificate.

    Raises:
        ConfigurationError: If a variable or the endpoint is malformed.
    """
    return replace(
        read_target({}, endpoint),
        headers=_pairs(_signal(otel, "HEADERS"), "OTEL_EXPORTER_OTLP_HEADERS", lower=True),
        certificate=_signal(otel, "CERTIFICATE"),
    )


def read_resource(otel: Mapping[str, str]) -> dict[str, str]:
    """Return the resource attributes; `OTEL_SERVICE_NAME` overrides `service.name`.

    Raises:
        ConfigurationError: If `OTEL_RESOURCE_ATTRIBUTES` is not a list of name=value.
    """
    named = _pairs(otel.get("OTEL_RESOURCE_ATTRIBUTES"), "OTEL_RESOURCE_ATTRIBUTES")
    resource = {"service.name": DEFAULT_SERVICE_NAME, **named}
    if service_name := otel.get("OTEL_SERVICE_NAME", "").strip():
        resource["service.name"] = service_name
    return resource


def _signal(otel: Mapping[str, str], name: str) -> str | None:
    """Return the variable for traces, else the one for all signals; empty counts as unset."""
    for variable in (f"OTEL_EXPORTER_OTLP_TRACES_{name}", f"OTEL_EXPORTER_OTLP_{name}"):
        if value := otel.get(variable, "").strip():
            return value
    return None


def _url(otel: Mapping[str, str], endpoint: str | None, protocol: str) -> str:
    # The variable for traces is used verbatim; the general one gets the signal's path appended.
    exact = None if endpoint else otel.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()
    general = otel.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip()
    default = DEFAULT_GRPC_ENDPOINT if protocol == PROTOCOL_GRPC else DEFAULT_ENDPOINT
    url = exact or endpoint or general or default
    check_http_address("OTLP endpoint", url, default)
    parts = urlsplit(url)
    if protocol == PROTOCOL_GRPC:
        if parts.username is not None:
            # It would be taken for a part of the host's name, and be in its errors.
            raise ConfigurationError(
                f"OTLP endpoint is {hide_password(url)!r} with a user, which gRPC does not send; "
                "put authorization=Basic%20… into OTEL_EXPORTER_OTLP_HEADERS"
            )
        return url
    if exact or parts.path.endswith("/v1/traces"):
        return url
    return f"{url.rstrip('/')}/v1/traces"


def _pairs(text: str | None, variable: str, *, lower: bool = False) -> dict[str, str]:
    """Read `name=value,name=value` with percent-encoded values (W3C Baggage)."""
    pairs: dict[str, str] = {}
    for item in (text or "").split(","):
        if not item.strip():
            continue
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            # A header's value may be a secret.
            shown = "an item" if lower else repr(item.strip())
            raise ConfigurationError(f"{variable}: {shown} is not name=value")
        name = unquote(name.strip())
        pairs[name.lower() if lower else name] = unquote(value.strip())
    return pairs


def _seconds(text: str | None) -> float:
    # The specification gives milliseconds; OpenTelemetry's Python SDK reads seconds. A value that
    # makes sense in only one of the two units is read in that unit.
    if text is None:
        return 10.0
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if value <= 0:
        raise ConfigurationError(
            f"OTEL_EXPORTER_OTLP_TIMEOUT is {text!r}, expected milliseconds such as 10000"
        )
    return value / 1000 if value >= 1000 else value
