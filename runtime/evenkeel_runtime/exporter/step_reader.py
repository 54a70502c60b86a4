"""Receives step records in a thread, and builds the ledgers of finished requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import monotonic
from typing import TypeVar

import zmq

from evenkeel.error_guard import ErrorGuard
from evenkeel.errors import ConfigurationError
from evenkeel_runtime.exporter.energy import EnergyMeter, EnergySampler
from evenkeel_runtime.exporter.step_history import StepHistory, request_span
from evenkeel_runtime.exporter.step_runs import StepRun
from evenkeel_runtime.ledger.attribution import DEFAULT_RIVALS, Ledger, RequestTimes
from evenkeel_runtime.ledger.step_costs import PricedSteps
from evenkeel_runtime.ledger.timeline import EngineRequest
from evenkeel_runtime.wire.steps import Batch, decode_batches

logger = logging.getLogger(__name__)

T = TypeVar("T")

DEFAULT_MAX_BYTES = 64 * 1024 * 1024
DEFAULT_MAX_REQUESTS = 50_000
# A request's last record leaves the engine before its last output does. Only requests ended by the
# server (a stop string, a disconnected client) have to be waited for, until vLLM aborts them.
DEFAULT_WAIT_S = 0.25
# Linux and the BSDs limit a Unix socket path to 108 and 104 bytes, including the terminator.
_MAX_PATH_BYTES = 103
_POLL_MS = 100
_BATCHES_AT_ONCE = 64
# Maximum consecutive receive rounds before queries are answered again.
_MOST_GOES = 64
# How long to wait for more after a batch: many small ones cost several times one large one.
_GATHER_S = 0.25


@dataclass(frozen=True, slots=True)
class StepReaderCounts:
    """Counters of the reader; each only grows.

    Attributes:
        steps: Steps received.
        lost_steps: Steps that an engine could not send.
        lost_batches: Batches that were sent but did not arrive.
        malformed_batches: Messages that could not be decoded.
        internal_errors: Internal errors; the first is logged.
        ledgers: Ledgers built.
        unmatched: Requests without a ledger, because the engine's records are missing.
    """

    steps: int = 0
    lost_steps: int = 0
    lost_batches: int = 0
    malformed_batches: int = 0
    internal_errors: int = 0
    ledgers: int = 0
    unmatched: int = 0


@dataclass(frozen=True, slots=True)
class _Question:
    """A request to build a ledger for."""

    request_id: str
    times: RequestTimes
    num_sequences: int
    max_rivals: int


@dataclass(frozen=True, slots=True)
class _Found:
    """A request to build a ledger for, and the engine that ran it."""

    history: StepHistory
    request: EngineRequest
    asked: _Question


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A pending query for a request whose last record may not have arrived yet."""

    question: _Question
    deadline_s: float
    answer: Future[Ledger | None]


class StepReader:
    """Receives the records of all engines of one server; its methods may be called from any thread.

    Args:
        address: ZeroMQ address to listen on, such as `ipc:///run/user/1000/evenkeel/steps`. The
            folder of an `ipc` address should be the server's own: whoever can write there can send.
        max_bytes: Limit on step records per engine, in bytes.
        max_requests: Limit on requests per engine.
        meters: Meters of the engines whose energy can be measured, by engine.
    """

    def __init__(
        self,
        address: str,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_requests: int = DEFAULT_MAX_REQUESTS,
        meters: Mapping[int, EnergyMeter] | None = None,
    ) -> None:
        self._address = address
        self._meters = meters or {}
        self._sampler = EnergySampler(self._meters.values())
        self._max_bytes = max_bytes
        self._max_requests = max_requests
        self._histories: dict[int, StepHistory] = {}
        self._waiting: list[_Waiting] = []
        self._lock = threading.Lock()
        self._should_stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._malformed = ErrorGuard(
            logger.warning,
            "dropped a step batch, further ones are only counted: %s",
            expected=ValueError,
        )
        self._errors = ErrorGuard(
            logger.error,
            "cannot build step ledgers; further errors are only counted: %r",
        )
        self._num_ledgers = 0
        self._num_unmatched = 0

    def start(self) -> None:
        """Start listening in a separate thread.

        Raises:
            ConfigurationError: If the address cannot be listened on.
        """
        path = self._address.removeprefix("ipc://")
        if path != self._address and len(path.encode()) > _MAX_PATH_BYTES:
            raise ConfigurationError(
                f"step socket {path}: {len(path.encode())} bytes, a Unix socket's path takes at "
                f"most {_MAX_PATH_BYTES}; choose a shorter data folder"
            )
        context = zmq.Context()
        socket = context.socket(zmq.PULL)
        try:
            socket.bind(self._address)
        except zmq.ZMQError as error:
            context.destroy(linger=0)
            raise ConfigurationError(f"step socket {self._address}: {error}") from error
        self._thread = threading.Thread(
            target=self._run, args=(context, socket), name="evenkeel-steps", daemon=True
        )
        self._sampler.start()
        self._thread.start()

    def close(self) -> None:
        """Stop listening; pending ledgers are built from the records received so far."""
        self._should_stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._sampler.stop()
        path = self._address.removeprefix("ipc://")
        if path != self._address:
            Path(path).unlink(missing_ok=True)

    def ask_ledger(
        self,
        request_id: str,
        times: RequestTimes,
        num_sequences: int = 1,
        wait_s: float = DEFAULT_WAIT_S,
    ) -> Future[Ledger | None]:
        """Return a future for a request's ledger; never blocks.

        The future is resolved, and its callbacks run, in the reader's thread once the last record
        has arrived or after `wait_s`; with None if the engine's records of the request are missing.

        Args:
            request_id: Its id in the API and the engine client.
            times: The request's own timestamps.
            num_sequences: Number of sequences requested (`n`).
            wait_s: Longest wait for the last record.
        """
        answer: Future[Ledger | None] = Future()
        question = _Question(request_id, times, num_sequences, DEFAULT_RIVALS)
        with self._lock:
            self._waiting.append(_Waiting(question, monotonic() + wait_s, answer))
        return answer

    def read(self, look: Callable[[Mapping[int, StepHistory]], T]) -> T:
        """Return the result of `look` on each engine's history, which does not change meanwhile."""
        with self._lock:
            return look(self._histories)

    def take_runs(self) -> dict[int, list[StepRun]]:
        """Return the runs of steps of each engine since the last call."""
        with self._lock:
            return {engine: history.runs.take() for engine, history in self._histories.items()}

    def read_counts(self) -> StepReaderCounts:
        """Return the reader's counters."""
        with self._lock:
            histories = list(self._histories.values())
            return StepReaderCounts(
                steps=sum(h.num_steps for h in histories),
                lost_steps=sum(h.lost_steps for h in histories),
                lost_batches=sum(h.num_lost_batches for h in histories),
                malformed_batches=self._malformed.num_errors,
                internal_errors=self._errors.num_errors,
                ledgers=self._num_ledgers,
                unmatched=self._num_unmatched,
            )

    def _run(self, context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes]) -> None:
        try:
            while not self._should_stop.is_set():
                # Before the poll: what arrived by a deadline counts, however late it is read.
                now_s = monotonic()
                if socket.poll(_POLL_MS):
                    self._should_stop.wait(_GATHER_S)
                    self._receive_all(socket)
                self._answer(now_s)
            self._receive_all(socket)
        finally:
            context.destroy(linger=0)
            self._answer(inf)

    def _receive_all(self, socket: zmq.Socket[bytes]) -> None:
        """Process received batches; many engines may send more than one round can hold."""
        for _ in range(_MOST_GOES):
            if self._receive(socket) < _BATCHES_AT_ONCE:
                break

    def _receive(self, socket: zmq.Socket[bytes]) -> int:
        """Process some batches; return the number of messages."""
        messages: list[bytes] = []
        while len(messages) < _BATCHES_AT_ONCE:
            try:
                messages.append(socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                break
        batches, errors = decode_batches(messages)
        for error in errors:
            self._malformed.record(error)
        # What the steps in the batches used must be measured by the time it is shared out.
        if batches:
            self._sampler.refresh()
        with self._lock:
            for batch in batches:
                self._take(batch)
        return len(messages)

    def _take(self, batch: Batch) -> None:
        try:
            history = self._histories.get(batch.engine)
            if history is None:
                history = StepHistory(
                    self._max_bytes, self._max_requests, self._meters.get(batch.engine)
                )
                self._histories[batch.engine] = history
            history.add(batch)
        except Exception as error:
            self._errors.record(error)

    def _answer(self, now_s: float) -> None:
        """Resolve pending queries that are complete or have timed out."""
        with self._lock:
            still_waiting: list[_Waiting] = []
            due: list[tuple[_Waiting, _Found | None]] = []
            for asked in self._waiting:
                found = self._find(asked.question)
                is_complete = found is not None and found.history.has_left(found.request)
                if asked.deadline_s <= now_s or is_complete:
                    due.append((asked, found))
                else:
                    still_waiting.append(asked)
            self._waiting = still_waiting
            ledgers = self._make_ledgers([found for _, found in due])
        # Outside the lock: a callback may call the reader.
        for (asked, _), ledger in zip(due, ledgers, strict=True):
            if asked.answer.set_running_or_notify_cancel():
                asked.answer.set_result(ledger)

    def _find(self, asked: _Question) -> _Found | None:
        try:
            for history in self._histories.values():
                request = history.find_request(asked.request_id, asked.times, asked.num_sequences)
                if request is not None:
                    return _Found(history, request, asked)
        except Exception as error:
            self._errors.record(error)
        return None

    def _make_ledgers(self, found: Sequence[_Found | None]) -> list[Ledger | None]:
        """Return the ledger of each request, laying out and pricing the steps of all only once."""
        priced: dict[int, PricedSteps] = {}
        try:
            spans: dict[int, list[tuple[int, int]]] = {}
            for each in found:
                if each is not None:
                    span = request_span(each.asked.times, each.request)
                    spans.setdefault(id(each.history), []).append(span)
            for history in self._histories.values():
                if its := spans.get(id(history)):
                    priced[id(history)] = history.price(
                        min(start for start, _ in its), max(end for _, end in its)
                    )
        except Exception as error:
            self._errors.record(error)
        return [self._make_ledger(each, priced) for each in found]

    def _make_ledger(
        self, found: _Found | None, priced: Mapping[int, PricedSteps]
    ) -> Ledger | None:
        if found is None:
            self._num_unmatched += 1
            return None
        try:
            ledger = found.history.charge(
                found.asked.times,
                found.request,
                found.asked.max_rivals,
                priced.get(id(found.history)),
            )
        except Exception as error:
            self._errors.record(error)
            return None
        self._num_ledgers += 1
        return ledger
