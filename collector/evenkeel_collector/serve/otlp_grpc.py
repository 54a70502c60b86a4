"""The OTLP/gRPC port: Export of each signal, on raw bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from evenkeel.errors import ConfigurationError
from evenkeel.http_address import with_port
from evenkeel_collector.intake.intake import (
    DEFAULT_MEMORY_FACTOR,
    REFUSALS,
    RETRY_AFTER_S,
    Intake,
    message_of,
)
from evenkeel_collector.intake.signals import PROTOBUF, SIGNALS, Signal
from evenkeel_collector.ports.access import ForbiddenError, UnauthenticatedError
from evenkeel_collector.ports.connections import HANDSHAKE_S, IDLE_S
from evenkeel_collector.ports.decompress import TooLargeError
from evenkeel_collector.ports.tenant_limits import RateLimitedError
from evenkeel_collector.ports.tls import Tls

TRANSPORT = "grpc"
DETAILS_KEY = "grpc-status-details-bin"
# gRPC silently refuses larger messages. Up to this size, we refuse and count them.
COUNTED_FACTOR = 4
# Senders reconnect after this long; calls that stay open longer are cut off.
MAX_AGE_S = 600
GRACE_S = 60
CODES = {code.value[0]: code for code in grpc.StatusCode}


@dataclass(frozen=True, slots=True)
class _Exporter:
    """Export of one signal."""

    intake: Intake
    signal: Signal
    max_body_bytes: int

    async def export(self, body: bytes, context: Any) -> bytes:
        try:
            tenant = self.intake.tenant_of(_headers(context.invocation_metadata()))
            if len(body) > self.max_body_bytes:
                raise TooLargeError(f"message is larger than {self.max_body_bytes} bytes")
            with self.intake.memory.lease(len(body) * DEFAULT_MEMORY_FACTOR):
                await self.intake.take(self.signal, PROTOBUF, body, tenant, TRANSPORT)
        except tuple(REFUSALS) as error:
            await _refuse(self.intake, error, context)
        return b""


class _TokenFirst(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Refuses senders without a valid token before their message is read into memory."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        try:
            self._intake.tenant_of(_headers(details.invocation_metadata))
        except (UnauthenticatedError, ForbiddenError) as error:
            refusal = error
        else:
            return handler

        async def refuse(messages: Any, context: Any) -> bytes:
            await _refuse(self._intake, refusal, context)
            return b""

        # A handler of a stream is called before its messages are read.
        return handler and grpc.stream_unary_rpc_method_handler(refuse)


def _headers(metadata: Any) -> dict[str, str]:
    return {key: value for key, value in metadata or () if isinstance(value, str)}


async def _refuse(intake: Intake, error: Exception, context: Any) -> None:
    """Count a refused call and end it."""
    intake.count_rejected(TRANSPORT, error)
    code = CODES[REFUSALS[type(error)].rpc_code]
    message = message_of(error)
    # grpc.aio accepts only a tuple.
    trailer: tuple[tuple[str, bytes], ...] = ()
    if isinstance(error, RateLimitedError):
        trailer = ((DETAILS_KEY, _retry_details(code, message, error.retry_after_s)),)
    elif code is grpc.StatusCode.UNAVAILABLE:
        trailer = ((DETAILS_KEY, _retry_details(code, message, RETRY_AFTER_S)),)
    await context.abort(code, message, trailer)


def build_server(intake: Intake, max_body_bytes: int, max_connections: int) -> Any:
    """Return a grpc.aio server without a port."""
    server = grpc.aio.server(
        interceptors=[_TokenFirst(intake)],
        options=[
            ("grpc.max_receive_message_length", max_body_bytes * COUNTED_FACTOR),
            ("grpc.so_reuseport", 0),
            ("grpc.max_allowed_incoming_connections", max_connections),
            ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_S * 1000)),
            ("grpc.max_connection_idle_ms", int(IDLE_S * 1000)),
            ("grpc.max_connection_age_ms", MAX_AGE_S * 1000),
            ("grpc.max_connection_age_grace_ms", GRACE_S * 1000),
        ],
    )
    for signal in SIGNALS:
        exporter = _Exporter(intake, signal, max_body_bytes)
        handler = grpc.unary_unary_rpc_method_handler(exporter.export)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(signal.grpc_service, {"Export": handler}),)
        )
    return server


def bind(server: Any, host: str, port: int, tls: Tls | None = None) -> int:
    """Bind the server's port and return it.

    Raises:
        ConfigurationError: If the port is in use or the certificate is invalid.
    """
    address = with_port(host, port)
    try:
        if tls is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, _credentials(tls))
    except RuntimeError as error:
        raise ConfigurationError(f"cannot listen on {address} (--grpc-port)") from error
    if bound == 0:
        raise ConfigurationError(f"cannot listen on {address} (--grpc-port)")
    return int(bound)


def _credentials(tls: Tls) -> Any:
    given = tls.current

    def configuration() -> Any:
        return grpc.ssl_server_certificate_configuration(
            [(given.key, given.chain)], root_certificates=given.client_ca
        )

    def fetch() -> Any:
        """Return the certificate of the next connection, None if it is the last one's."""
        nonlocal given
        if tls.current is given:
            return None
        given = tls.current
        return configuration()

    return grpc.dynamic_ssl_server_credentials(
        configuration(), fetch, require_client_authentication=given.client_ca is not None
    )


def _retry_details(code: grpc.StatusCode, message: str, seconds: int) -> bytes:
    """Return the Status that makes OTLP senders retry later instead of dropping the batch."""
    info = AnyMessage()
    info.Pack(RetryInfo(retry_delay=Duration(seconds=seconds)))
    status = Status(code=code.value[0], message=message, details=[info])
    return bytes(status.SerializeToString())
