"""Sends OTLP batches over HTTP or gRPC and returns the outcome of each."""

from __future__ import annotations

import gzip
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit
from weakref import finalize

import httpx
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from evenkeel.errors import ConfigurationError, first_line
from evenkeel.otlp_target import METRICS, PROTOCOL_GRPC, TRACES, OtlpTarget
from evenkeel.outside_text import for_terminal
from evenkeel.retry_delay import RetryDelay, read_retry_after

# OTLP specification, "Failures": only these may be retried.
_RETRYABLE_HTTP = (429, 502, 503, 504)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# For senders that wait for the answer: total attempts, and the longest wait between two.
MAX_ATTEMPTS, FIRST_WAIT_S, LONGEST_WAIT_S = 8, 0.2, 10.0
_STATUS_DETAILS = "grpc-status-details-bin"
# Of a receiver's message, in a log.
_MAX_DETAILS = 300
_GRPC_METHODS = {
    TRACES: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    METRICS: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outcome of one batch.

    Attributes:
        is_done: Whether the batch was accepted or rejected; False asks for a retry.
        num_rejected: Spans that the receiver rejected; the whole batch if it rejected that.
        retry_after_s: How long the receiver asked to wait, if it did.
        reason: Why it was not accepted, in a few words.
        is_unreachable: Whether no receiver was reached at all.
    """

    is_done: bool
    num_rejected: int = 0
    retry_after_s: float | None = None
    reason: str = ""
    is_unreachable: bool = False


Send = Callable[[bytes, int], Delivery]


def open_sender(target: OtlpTarget) -> Send:
    """Return a function that sends one serialized batch, given its number of spans, to `target`."""
    return _open_grpc(target) if target.protocol == PROTOCOL_GRPC else _open_http(target)


def deliver(send: Send, body: bytes, num_spans: int) -> Delivery:
    """Send a batch until the receiver accepts or rejects it, in up to eight attempts.

    Waits as long as the receiver asks, otherwise about 0.2 s and twice as long each time; up to
    10 s. An unreachable receiver is not retried.
    """
    delay = RetryDelay(FIRST_WAIT_S, LONGEST_WAIT_S)
    for attempt in range(MAX_ATTEMPTS):
        outcome = send(body, num_spans)
        if outcome.is_done or outcome.is_unreachable or attempt == MAX_ATTEMPTS - 1:
            return outcome
        time.sleep(delay.next_s(outcome.retry_after_s))
    raise AssertionError("the last attempt returns")


def trust(target: OtlpTarget) -> ssl.SSLContext | bool:
    """Return what httpx checks the receiver's certificate with.

    Raises:
        ConfigurationError: If the certificate of the authority cannot be read.
    """
    if target.certificate is None:
        return True
    try:
        return ssl.create_default_context(cafile=target.certificate)
    except OSError as error:
        raise ConfigurationError(
            f"OTEL_EXPORTER_OTLP_CERTIFICATE is {target.certificate!r}, expected a file of"
            f" certificates in PEM ({first_line(error)})"
        ) from error


def _open_http(target: OtlpTarget) -> Send:
    headers = {**target.headers, "content-type": "application/x-protobuf"}
    if target.is_compressed:
        headers["content-encoding"] = "gzip"
    client = httpx.Client(
        headers=headers,
        timeout=target.timeout_s,
        verify=trust(target),
        # A proxy from the environment cannot reach this machine's loopback.
        trust_env=urlsplit(target.url).hostname not in _LOOPBACK,
    )

    def send(body: bytes, num_spans: int) -> Delivery:
        try:
            response = client.post(
                target.url, content=gzip.compress(body, 1) if target.is_compressed else body
            )
        except httpx.HTTPError as error:
            is_unreachable = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            return Delivery(False, reason=type(error).__name__, is_unreachable=is_unreachable)
        if response.is_success:
            return Delivery(is_done=True, num_rejected=_num_rejected(response.content))
        reason = _with_details(f"HTTP {response.status_code}", _status_message(response))
        if response.status_code in _RETRYABLE_HTTP:
            wait_s = read_retry_after(response.headers.get("retry-after"))
            return Delivery(is_done=False, retry_after_s=wait_s, reason=reason)
        return Delivery(is_done=True, num_rejected=num_spans, reason=reason)

    # Its connections are closed once nobody can send any more.
    finalize(send, client.close)
    return send


def _open_grpc(target: OtlpTarget) -> Send:
    import grpc

    # OTLP specification, "Failures" of OTLP/gRPC: only these may be retried, and
    # RESOURCE_EXHAUSTED only with RetryInfo: otherwise the batch is too large for ever.
    retryable = {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
    parts = urlsplit(target.url)
    options = [("grpc.enable_http_proxy", int(parts.hostname not in _LOOPBACK))]
    compression = grpc.Compression.Gzip if target.is_compressed else grpc.Compression.NoCompression
    if parts.scheme == "https":
        roots = None
        if target.certificate is not None:
            with open(target.certificate, "rb") as file:
                roots = file.read()
        credentials = grpc.ssl_channel_credentials(roots)
        channel = grpc.secure_channel(parts.netloc, credentials, options, compression)
    else:
        channel = grpc.insecure_channel(parts.netloc, options, compression)
    export = channel.unary_unary(_GRPC_METHODS[target.signal])

    def send(body: bytes, num_spans: int) -> Delivery:
        try:
            answer = export(body, timeout=target.timeout_s, metadata=tuple(target.headers.items()))
        except grpc.RpcError as error:
            code = error.code()
            wait_s = _asked_wait_s(dict(error.trailing_metadata() or ()))
            is_full = code == grpc.StatusCode.RESOURCE_EXHAUSTED and wait_s is not None
            is_done = code not in retryable and not is_full
            reason = _with_details(code.name, error.details() or "")
            return Delivery(is_done, num_spans if is_done else 0, wait_s, reason)
        return Delivery(is_done=True, num_rejected=_num_rejected(answer))

    return send


def _status_message(response: httpx.Response) -> str:
    """Return the message of the Status in a refusal; "" if there is none."""
    from google.rpc.status_pb2 import Status

    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/x-protobuf":
        return ""
    try:
        return str(Status.FromString(response.content).message)
    except DecodeError:
        return ""


def _with_details(what: str, details: str) -> str:
    line = details.strip().partition("\n")[0][:_MAX_DETAILS]
    return f"{what} ({for_terminal(line)})" if line else what


def _asked_wait_s(trailers: Mapping[str, str | bytes]) -> float | None:
    """Return the seconds that an answer's RetryInfo asks to wait; None if it has none."""
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status

    packed = trailers.get(_STATUS_DETAILS)
    if not isinstance(packed, bytes):
        return None
    info = RetryInfo()
    try:
        if any(detail.Unpack(info) for detail in Status.FromString(packed).details):
            return float(max(0.0, info.retry_delay.seconds + info.retry_delay.nanos / 1e9))
    except DecodeError:
        pass
    return None


def _num_rejected(answer: bytes) -> int:
    """Return how many spans the receiver rejected; 0 if its answer does not say.

    The answers to metrics have the same form.
    """
    try:
        response = ExportTraceServiceResponse.FromString(answer)
    except DecodeError:
        return 0
    return int(response.partial_success.rejected_spans)
