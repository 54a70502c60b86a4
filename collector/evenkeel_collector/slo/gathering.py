"""Gathers evidence on firing alerts, in parallel to the evaluation."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from evenkeel.error_guard import ErrorGuard
from evenkeel.errors import StoreError
from evenkeel.slo.receiver import Receiver
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.evidence_requests import (
    ANNOTATION,
    EvidenceBook,
    EvidenceQueue,
    EvidenceRequest,
)
from evenkeel_collector.slo.store import SloStore

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

# The time budget for one alert's evidence, and how long after firing it is still worth gathering.
ALERT_S = 30.0
OVERALL_S = 60.0
LEAST_S = 1.0
NUM_WORKERS = 2
_POLL_S = 0.25
# How late a worker notices a stop.
_IDLE_S = 0.1
_MOST_SHARED = 64
# These facts are the same for every alert of a cycle, or of a selection.
_SHARED = ("deploys.sql", "control_actions.sql", "newest_eval_gates.sql", "prompt_changes.sql")
_TOO_LATE = {ANNOTATION: f"not gathered: other alerts used up the limit of {OVERALL_S:g} s"}


class EvidenceStore(SloStore):
    """The store with a time budget per alert; facts that alerts share are read once.

    Args:
        client: A client for the calling thread.
        shared: The cache that workers share.
    """

    def __init__(self, client: Client, shared: dict[str, list[dict[str, Any]]]) -> None:
        super().__init__(client)
        self._shared = shared
        self._until_s = 0.0

    def begin(self, budget_s: float) -> None:
        """Start a new time budget, in seconds, for all queries that follow."""
        self._until_s = time.monotonic() + budget_s

    def _query(
        self,
        query: Path,
        parameters: Mapping[str, Any],
        settings: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        key = f"{query.name} {sorted(parameters.items())}" if query.name in _SHARED else None
        if key is not None and key in self._shared:
            return self._shared[key]
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise StoreError("the time budget for this alert is used up")
        # Each worker is one thread: evaluation and delivery need the other cores.
        limits = {"max_execution_time": max(left_s, 0.1), "max_threads": 1}
        rows = super()._query(query, parameters, limits)
        if key is not None:
            if len(self._shared) >= _MOST_SHARED:
                self._shared.clear()
            self._shared[key] = rows
        return rows


class Gatherer:
    """Threads that gather evidence and add it to alerts already committed without.

    Args:
        connect: Returns a client of the store for the calling thread.
        book_path: The alert book; each thread opens its own connection.
        evidence_queue: The queue of evidence requests.
        find_receivers: Returns the receivers of the SLO file in force, by name.
        stop: Ends the threads when it is set.
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        book_path: Path,
        evidence_queue: EvidenceQueue,
        find_receivers: Callable[[], Mapping[str, Receiver]],
        stop: threading.Event,
    ) -> None:
        self._connect = connect
        self._book_path = book_path
        self._evidence_queue = evidence_queue
        self._find_receivers = find_receivers
        self._stop = stop
        self._shared: dict[str, list[dict[str, Any]]] = {}
        self._began_ns = time.time_ns()
        self._refusals = ErrorGuard(
            logger.error, "evidence cannot be written, retrying error=%s", expected=SQLAlchemyError
        )

    def start(self) -> list[threading.Thread]:
        """Start the threads and return them."""
        targets = [self._gather] * NUM_WORKERS + [self._follow]
        threads = [
            threading.Thread(target=self._guard, args=(target,), name="slo-evidence", daemon=True)
            for target in targets
        ]
        for thread in threads:
            thread.start()
        return threads

    def _guard(self, run: Callable[[AlertBook], None]) -> None:
        """Run until stopped; log any failure and restart."""
        while not self._stop.is_set():
            try:
                book = AlertBook(self._book_path)
                try:
                    run(book)
                finally:
                    book.close()
            except Exception:
                logger.exception("gathering evidence failed, restarting")
                self._stop.wait(1.0)

    def _gather(self, book: AlertBook) -> None:
        evidence = EvidenceBook(book)
        store: EvidenceStore | None = None
        client: Client | None = None
        try:
            while not self._stop.is_set():
                request = self._evidence_queue.next(_IDLE_S)
                if request is None:
                    continue
                try:
                    if client is None:
                        client = self._connect()
                    store = store or EvidenceStore(client, self._shared)
                    facts = gather_one(request, store, self._evidence_queue.num_waiting())
                except Exception as error:
                    logger.exception("evidence cannot be gathered alert=%s", request.alert_id)
                    facts = {ANNOTATION: f"not available: {error}"}
                self._add(evidence, request.alert_id, facts)
        finally:
            if client is not None:
                client.close()

    def _follow(self, book: AlertBook) -> None:
        """Queue updates of sent notifications; drop requests that no worker will handle."""
        evidence = EvidenceBook(book)
        # Its own: a worker whose write succeeds says nothing about these.
        refusals = ErrorGuard(
            logger.error,
            "late evidence cannot be written, retrying error=%s",
            expected=SQLAlchemyError,
        )
        while not self._stop.wait(_POLL_S):
            now_ns = time.time_ns()
            try:
                evidence.update_receivers(self._find_receivers(), now_ns)
                for alert_id, fired_ns in evidence.awaited().items():
                    # After a restart its condition requests it again, if it still holds.
                    since_ns = max(fired_ns, self._began_ns)
                    if now_ns - since_ns > (OVERALL_S + 2 * ALERT_S) * 1e9:
                        self._add(evidence, alert_id, _TOO_LATE)
            except SQLAlchemyError as error:
                refusals.record(error)
                self._stop.wait(1.0)
            else:
                refusals.clear()

    def _add(self, evidence: EvidenceBook, alert_id: str, facts: Mapping[str, str]) -> None:
        while True:
            try:
                evidence.add(alert_id, facts, time.time_ns())
            except SQLAlchemyError as error:
                self._refusals.record(error)
                if self._stop.wait(1.0):
                    return
            else:
                self._refusals.clear()
                self._evidence_queue.submit(alert_id, facts)
                return


def gather_one(
    request: EvidenceRequest, store: EvidenceStore, num_waiting: int = 0
) -> Mapping[str, str]:
    """Return the evidence on one alert within its budget, or why there is none.

    If many are waiting, each gets an equal share of the remaining time, so that all get at least
    the facts read first, which matter most.
    """
    left_s = request.asked_s + OVERALL_S - time.monotonic()
    if left_s <= 0:
        return _TOO_LATE
    share_s = max(left_s * NUM_WORKERS / (num_waiting + 1), LEAST_S)
    store.begin(min(ALERT_S, left_s, share_s))
    try:
        return request.gather(store)
    except Exception as error:
        # Unexpected data must not leave an alert waiting.
        logger.exception("evidence cannot be gathered alert=%s", request.alert_id)
        return {ANNOTATION: f"not available: {error}"}
