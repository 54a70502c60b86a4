"""A real OTLP/HTTP receiver on loopback that can be stopped and started again on its port."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

WAIT_S = 120.0


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_span_id: str
    trace_state: str
    start_ns: int
    end_ns: int
    status_code: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    scope: str


class OtlpReceiver:
    """Collects spans; `answer` may be set to refuse them with another HTTP status."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[ReceivedSpan] = []
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.answer = 200
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path == "/v1/traces" and receiver.answer == 200:
                    receiver.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(receiver.answer)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def take(self, request: ExportTraceServiceRequest) -> None:
        received = [
            ReceivedSpan(
                name=span.name,
                kind=span.kind,
                trace_id=span.trace_id.hex(),
                span_id=span.span_id.hex(),
                parent_span_id=span.parent_span_id.hex(),
                trace_state=span.trace_state,
                start_ns=span.start_time_unix_nano,
                end_ns=span.end_time_unix_nano,
                status_code=span.status.code,
                attributes=_values(span.attributes),
                resource=_values(resource.resource.attributes),
                scope=scope.scope.name,
            )
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        with self._lock:
            self._spans += received

    def spans(self) -> list[ReceivedSpan]:
        with self._lock:
            return list(self._spans)

    def wait_for(
        self, is_wanted: Callable[[ReceivedSpan], bool], count: int = 1, timeout_s: float = WAIT_S
    ) -> list[ReceivedSpan]:
        """Return the wanted spans once there are `count` of them."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = [span for span in self.spans() if is_wanted(span)]
            if len(found) >= count:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(found)} of {count} spans after {timeout_s} s")
            time.sleep(0.02)


def _values(attributes: Any) -> dict[str, Any]:
    return {attribute.key: _value(attribute.value) for attribute in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)
