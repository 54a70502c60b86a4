"""Request evidence when an alert fires, and add it once it has been gathered.

An alert is committed and sent with what is known without a query. Evidence later completes its
state, its history and all notifications not sent yet. Receivers that keep one record per alert get
the notification again, under the same id.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from sqlalchemy import Column, ColumnElement, Table, delete, exists, func, select, true, update

from evenkeel.slo.receiver import Receiver, ReceiverType
from evenkeel_collector.alerts.alert import Details
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.outbox import HOLD_NS, IS_OVERTAKEN
from evenkeel_collector.alerts.state import State
from evenkeel_collector.alerts.tables import (
    IS_WAITING,
    alerts,
    evidence,
    group_members,
    outbox,
    transitions,
)

ANNOTATION = "evidence"
GATHERING = "is being gathered"
# These keep one record per alert, and a second notification with the same id updates it. For all
# others it would be a second message or page.
_UPDATED = (ReceiverType.WEBHOOK, ReceiverType.GENERIC, ReceiverType.ALERTMANAGER)
# An attempt that was in flight when the evidence arrived ends within this time.
_SETTLE_NS = 60 * 10**9
_URGENCY = {"page": 0}


def is_updated(receiver: Receiver) -> bool:
    """Return whether a receiver gets late evidence as an update of an earlier notification."""
    return receiver.type in _UPDATED and receiver.group is None


def hold_ns(receiver: Receiver) -> int:
    """Return how long a notification without evidence is held back from a receiver."""
    return 0 if is_updated(receiver) or receiver.group is not None else HOLD_NS


@dataclass(frozen=True, slots=True, order=True)
class EvidenceRequest:
    """A request for the evidence of one firing; sorts pages first, then by age.

    Attributes:
        urgency: 0 for a page, 1 otherwise.
        number: Sequence number.
        alert_id: The firing.
        asked_s: When it was requested, on the monotonic clock.
        gather: Reads the evidence from a store opened by the calling thread.
    """

    urgency: int
    number: int
    alert_id: str = field(compare=False)
    asked_s: float = field(compare=False)
    gather: Callable[[Any], Mapping[str, str]] = field(compare=False)


class EvidenceQueue:
    """A priority queue of evidence requests, and their results; thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._numbers = count()
        self._wanted: queue.PriorityQueue[EvidenceRequest] = queue.PriorityQueue()
        self._found: queue.SimpleQueue[tuple[str, Mapping[str, str]]] = queue.SimpleQueue()
        self._open: set[str] = set()

    def request(
        self, alert_id: str, severity: str, gather: Callable[[Any], Mapping[str, str]]
    ) -> None:
        """Request the evidence of a firing, unless it was requested before."""
        if alert_id in self._open:
            return
        self._open.add(alert_id)
        urgency = _URGENCY.get(severity, 1)
        self._wanted.put(
            EvidenceRequest(urgency, next(self._numbers), alert_id, self._clock(), gather)
        )

    def next(self, timeout_s: float) -> EvidenceRequest | None:
        """Return the most urgent request; None if there is none within the timeout."""
        try:
            return self._wanted.get(timeout=timeout_s) if timeout_s else self._wanted.get_nowait()
        except queue.Empty:
            return None

    def submit(self, alert_id: str, facts: Mapping[str, str]) -> None:
        """Submit the evidence for a request."""
        self._found.put((alert_id, facts))

    def num_waiting(self) -> int:
        """Return the approximate number of requests not yet started."""
        return self._wanted.qsize()

    def take(self) -> dict[str, Mapping[str, str]]:
        """Return the evidence submitted since the last call, by alert id."""
        found: dict[str, Mapping[str, str]] = {}
        while True:
            try:
                alert_id, facts = self._found.get_nowait()
            except queue.Empty:
                return found
            found[alert_id] = facts
            self._open.discard(alert_id)


def complete(annotations: Mapping[str, str], facts: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations with the evidence in place of the "being gathered" placeholder."""
    kept = {name: text for name, text in annotations.items() if text != GATHERING}
    return {**kept, **facts}


class EvidenceBook:
    """The evidence of an alert book; use it only in the thread that opened the book."""

    def __init__(self, book: AlertBook) -> None:
        self._book = book
        self._connection = book.connection

    def awaited(self) -> dict[str, int]:
        """Return when each firing without evidence fired, by alert id."""
        rows = self._connection.execute(
            select(evidence.c.alert_id, evidence.c.fired_ns).where(evidence.c.facts.is_(None))
        )
        return {alert_id: fired_ns for alert_id, fired_ns in rows}

    def add(self, alert_id: str, facts: Mapping[str, str], now_ns: int) -> None:
        """Add evidence to a firing: its state, its history and its waiting notifications."""
        is_waiting = IS_WAITING & ~outbox.c.is_repetition
        with self._book.transaction():
            self._connection.execute(
                update(evidence)
                .where(evidence.c.alert_id == alert_id)
                .values(facts=dict(facts), gathered_ns=now_ns)
            )
            for table in (alerts, transitions):
                self._complete(table, table.c.details, table.c.alert_id == alert_id, facts)
            for table, which in ((group_members, true()), (outbox, is_waiting)):
                self._complete(table, table.c.alerts, which & (table.c.alert_id == alert_id), facts)
            # Release the notifications that were held back for the evidence.
            self._connection.execute(
                update(outbox)
                .where(outbox.c.alert_id == alert_id, is_waiting, outbox.c.num_attempts == 0)
                .values(next_attempt_ns=func.min(outbox.c.next_attempt_ns, outbox.c.created_ns))
            )

    def _complete(
        self,
        table: Table,
        column: Column[Any],
        which: ColumnElement[bool],
        facts: Mapping[str, str],
    ) -> None:
        keys = list(table.primary_key)
        for found, *key in self._connection.execute(select(column, *keys).where(which)).all():
            same_row = [name == value for name, value in zip(keys, key, strict=True)]
            completed = {column.name: _completed(found, facts)}
            self._connection.execute(update(table).where(*same_row).values(completed))

    def update_receivers(self, receivers: Mapping[str, Receiver], now_ns: int) -> int:
        """Queue updates for receivers that got a firing without its evidence; return how many.

        There is no update if the firing has ended or a later notification is queued or sent.
        """
        gathered = select(evidence).where(evidence.c.facts.is_not(None))
        num_queued = 0
        for row in self._connection.execute(gathered).all():
            with self._book.transaction():
                # Failing to find evidence is not worth a notification.
                if set(row.facts) - {ANNOTATION}:
                    num_queued += self._update(row.alert_id, row.facts, receivers)
                if now_ns - row.gathered_ns >= _SETTLE_NS:
                    self._connection.execute(
                        delete(evidence).where(evidence.c.alert_id == row.alert_id)
                    )
        return num_queued

    def _update(
        self, alert_id: str, facts: Mapping[str, str], receivers: Mapping[str, Receiver]
    ) -> int:
        is_firing = exists().where(alerts.c.alert_id == alert_id, alerts.c.state == State.FIRING)
        sent = self._connection.execute(
            select(outbox.c.number, outbox.c.receiver, outbox.c.alerts).where(
                outbox.c.alert_id == alert_id,
                outbox.c.state == "delivered",
                outbox.c.status == "firing",
                ~outbox.c.is_repetition,
                is_firing,
                ~exists().where(IS_OVERTAKEN),
            )
        ).all()
        num_queued = 0
        for number, name, reported in sent:
            receiver, completed = receivers.get(name), _completed(reported, facts)
            if receiver is None or not is_updated(receiver) or completed == reported:
                continue
            self._connection.execute(
                update(outbox)
                .where(outbox.c.number == number)
                .values(
                    state="waiting",
                    alerts=completed,
                    num_attempts=0,
                    next_attempt_ns=outbox.c.created_ns,
                    ended_ns=None,
                )
            )
            num_queued += 1
        return num_queued


def _completed(found: Any, facts: Mapping[str, str]) -> Any:
    """Return the details, or the alerts of a notification, with the missing evidence added."""
    if isinstance(found, Details):
        return replace(found, annotations=complete(found.annotations, facts))
    if any(alert.annotations.get(ANNOTATION) != GATHERING for alert in found):
        return found
    return tuple(replace(alert, annotations=complete(alert.annotations, facts)) for alert in found)
