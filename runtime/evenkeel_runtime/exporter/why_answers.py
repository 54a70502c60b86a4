"""Stores explanations of recent requests in the exporter process and serves them to the server.

A query is two frames: the request id and the asking tenant (empty for an operator, who sees all).
The reply is the JSON described in docs/inside/ledger.md, or an empty frame if nothing is known.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass
from time import monotonic
from typing import Any

import msgspec
import zmq

from evenkeel_runtime.ledger.explanation import hide_others

logger = logging.getLogger(__name__)

MAX_REQUESTS = 4096
MAX_BYTES = 16 * 1024 * 1024
# A request's explanation is made with its spans, which are sent within the export interval.
WAIT_S = 1.5
_MAX_WAITING = 256
_POLL_MS = 50
# Poll interval while no query is pending; stopping takes up to this long.
_IDLE_MS = 500
# Suffixes that the API adds to the id of a completion's first prompt, and of a response.
_FIRST_OF_SEVERAL = ("", "-0", "_0")


class WhyStore:
    """Bounded store of recent requests' explanations; evicts the oldest first.

    Clients choose ids, so requests of several tenants may have the same one.

    Args:
        max_requests: Maximum number of requests.
        max_bytes: Maximum total size of their JSON.
    """

    def __init__(self, max_requests: int = MAX_REQUESTS, max_bytes: int = MAX_BYTES) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._kept: OrderedDict[tuple[str, str | None], bytes] = OrderedDict()
        # The tenant that had each id last.
        self._last_tenant: dict[str, str | None] = {}
        self._num_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, request_id: str, tenant: str | None, answer: dict[str, Any]) -> None:
        """Store the explanation of a request."""
        body = msgspec.json.encode(answer)
        with self._lock:
            self._num_bytes += len(body) - len(self._kept.pop((request_id, tenant), b""))
            self._kept[request_id, tenant] = body
            self._last_tenant[request_id] = tenant
            while len(self._kept) > self._max_requests or self._num_bytes > self._max_bytes:
                (oldest, whose), evicted = self._kept.popitem(last=False)
                self._num_bytes -= len(evicted)
                if self._last_tenant[oldest] == whose:
                    del self._last_tenant[oldest]

    def find(self, request_id: str, tenant: str | None) -> bytes | None:
        """Return the JSON of a request, by its own id or that of its HTTP request.

        Args:
            request_id: The id.
            tenant: The asking tenant: another tenant's request is not found, and other tenants' ids
                are omitted from the answer. None sees everything: the last request with the id.
        """
        with self._lock:
            for suffix in _FIRST_OF_SEVERAL:
                name = request_id + suffix
                whose = self._last_tenant.get(name) if tenant is None else tenant
                body = self._kept.get((name, whose))
                if body is not None:
                    return body if tenant is None else self._hide(body, tenant)
        return None

    def _hide(self, body: bytes, tenant: str) -> bytes:
        answer = msgspec.json.decode(body)
        named = [rival["request_id"] for rival in answer["without"]]
        evicted = (answer["prefix_cache"] or {}).get("evicted") or {}
        named.append(evicted.get("for_request"))
        own = [i for i in named if (i, tenant) in self._kept]
        return msgspec.json.encode(hide_others(answer, own))


@dataclass(frozen=True, slots=True)
class _Question:
    sender: bytes
    request_id: str
    tenant: str | None
    deadline_s: float


class WhyAnswers:
    """Answers queries about requests in a separate thread.

    Args:
        address: ZeroMQ address to listen on.
        store: The explanations.
    """

    def __init__(self, address: str, store: WhyStore) -> None:
        self._address = address
        self._store = store
        self._should_stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start listening.

        Raises:
            zmq.ZMQError: If the address cannot be listened on.
        """
        context = zmq.Context()
        socket = context.socket(zmq.ROUTER)
        try:
            socket.bind(self._address)
        except zmq.ZMQError:
            context.destroy(linger=0)
            raise
        self._thread = threading.Thread(
            target=self._run, args=(context, socket), name="evenkeel-why", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening; pending queries get no answer."""
        self._should_stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes]) -> None:
        waiting: list[_Question] = []
        try:
            while not self._should_stop.is_set():
                if socket.poll(_POLL_MS if waiting else _IDLE_MS) and (
                    question := _read(socket.recv_multipart())
                ):
                    waiting.append(question)
                waiting = [q for q in waiting if not self._answer(socket, q, len(waiting))]
        except zmq.ZMQError as error:
            logger.warning("/why stopped answering: %s", error)
        finally:
            context.destroy(linger=0)

    def _answer(self, socket: zmq.Socket[bytes], asked: _Question, num_waiting: int) -> bool:
        """Answer unless the request may still arrive; return whether it was answered."""
        body = self._store.find(asked.request_id, asked.tenant)
        is_late = monotonic() >= asked.deadline_s or num_waiting > _MAX_WAITING
        if body is None and not is_late:
            return False
        socket.send_multipart([asked.sender, b"", body or b""])
        return True


def _read(frames: list[bytes]) -> _Question | None:
    if len(frames) != 4:
        return None
    sender, _, request_id, tenant = frames
    return _Question(
        sender,
        request_id.decode("utf-8", "replace"),
        tenant.decode("utf-8", "replace") or None,
        monotonic() + WAIT_S,
    )
