"""Evidence that follows a firing: asked for when it fires, added to it when it is there.

An alert is committed and sent with what is known without a query. Its evidence completes the state,
the history, and every notification that was not sent yet; receivers that keep one record of an
alert get the same notification again, under its id.
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
# These keep one record of an alert, and a second notification under the same id changes it. To
# anybody else it would be a second message, or a second page.
_UPDATED = (ReceiverType.WEBHOOK, ReceiverType.GENERIC, ReceiverType.ALERTMANAGER)
# An attempt that was under way when the evidence came ends within this time.
_SETTLE_NS = 60 * 10**9
_URGENCY = {"page": 0}


def is_updated(receiver: Receiver) -> bool:
    """Return whether a receiver gets late evidence as an update of what it was sent."""
    return receiver.type in _UPDATED and receiver.group is None


def hold_ns(receiver: Receiver) -> int:
    """Return how long a notification without evidence is held back from a receiver."""
    return 0 if is_updated(receiver) or receiver.group is not None else HOLD_NS


@dataclass(frozen=True, slots=True, order=True)
class EvidenceRequest:
    """Wanted: the evidence of one firing. Pages come first, then the older one.

    Attributes:
        urgency: 0 for a page.
        number: In the order in which they were asked for.
        alert_id: The firing.
        asked_s: When it was asked for, by the monotonic clock.
        gather: Reads the evidence from a store of the calling thread.
    """

    urgency: int
    number: int
    alert_id: str = field(compare=False)
    asked_s: float = field(compare=False)
    gather: Callable[[Any], Mapping[str, str]] = field(compare=False)


class EvidenceDesk:
    """Where evidence is asked for and handed in; safe to use from several threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._numbers = count()
        self._wanted: queue.PriorityQueue[EvidenceRequest] = queue.PriorityQueue()
        self._found: queue.SimpleQueue[tuple[str, Mapping[str, str]]] = queue.SimpleQueue()
        self._open: set[str] = set()

    def ask(self, alert_id: str, severity: str, gather: Callable[[Any], Mapping[str, str]]) -> None:
        """Ask for the evidence of a firing, once however often it is asked for."""
        if alert_id in self._open:
            return
        self._open.add(alert_id)
        urgency = _URGENCY.get(severity, 1)
        self._wanted.put(
            EvidenceRequest(urgency, next(self._numbers), alert_id, self._clock(), gather)
        )

    def next(self, timeout_s: float) -> EvidenceRequest | None:
        """Return the most urgent request; None if none comes in time."""
        try:
            return self._wanted.get(timeout=timeout_s) if timeout_s else self._wanted.get_nowait()
        except queue.Empty:
            return None

    def hand_in(self, alert_id: str, facts: Mapping[str, str]) -> None:
        """Answer a request."""
        self._found.put((alert_id, facts))

    def num_waiting(self) -> int:
        """Return about how many requests nobody has begun."""
        return self._wanted.qsize()

    def take(self) -> dict[str, Mapping[str, str]]:
        """Return the answers since the last call, by alert id."""
        found: dict[str, Mapping[str, str]] = {}
        while True:
            try:
                alert_id, facts = self._found.get_nowait()
            except queue.Empty:
                return found
            found[alert_id] = facts
            self._open.discard(alert_id)


def complete(annotations: Mapping[str, str], facts: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations with the evidence in the place of the note that it is to come."""
    kept = {name: text for name, text in annotations.items() if text != GATHERING}
    return {**kept, **facts}


class EvidenceBook:
    """The evidence of an alert book; belongs to the thread that opened the book."""

    def __init__(self, book: AlertBook) -> None:
        self._book = book
        self._connection = book.connection

    def awaited(self) -> dict[str, int]:
        """Return the firings that wait for their evidence, with the moment at which they fired."""
        rows = self._connection.execute(
            select(evidence.c.alert_id, evidence.c.fired_ns).where(evidence.c.facts.is_(None))
        )
        return {alert_id: fired_ns for alert_id, fired_ns in rows}

    def add(self, alert_id: str, facts: Mapping[str, str], now_ns: int) -> None:
        """Complete a firing: its state, its history, and the notifications that wait."""
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
            # What was held back for the evidence need not wait any longer.
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
        """Owe an update to those that were sent a firing without its evidence; return how many.

        Nobody hears of a firing that has ended, or of which another notification is owed or sent.
        """
        gathered = select(evidence).where(evidence.c.facts.is_not(None))
        num_owed = 0
        for row in self._connection.execute(gathered).all():
            with self._book.transaction():
                # That there is no evidence is worth no notification.
                if set(row.facts) - {ANNOTATION}:
                    num_owed += self._update(row.alert_id, row.facts, receivers)
                if now_ns - row.gathered_ns >= _SETTLE_NS:
                    self._connection.execute(
                        delete(evidence).where(evidence.c.alert_id == row.alert_id)
                    )
        return num_owed

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
        num_owed = 0
        for number, name, told in sent:
            receiver, completed = receivers.get(name), _completed(told, facts)
            if receiver is None or not is_updated(receiver) or completed == told:
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
            num_owed += 1
        return num_owed


def _completed(found: Any, facts: Mapping[str, str]) -> Any:
    """Return the details, or the alerts of a notification, with the evidence that they await."""
    if isinstance(found, Details):
        return replace(found, annotations=complete(found.annotations, facts))
    if any(alert.annotations.get(ANNOTATION) != GATHERING for alert in found):
        return found
    return tuple(replace(alert, annotations=complete(alert.annotations, facts)) for alert in found)
