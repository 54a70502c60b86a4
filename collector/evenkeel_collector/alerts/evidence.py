"""Evidence that follows a firing: asked for when it fires, added to it when it is there.

An alert is committed and sent with what is known without a query. Its evidence completes the state,
the history, and every notification that was not sent yet; receivers that keep one record of an
alert get the same notification again, under its id.
"""

from __future__ import annotations

import json
import queue
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from evenkeel.slo.receiver import Receiver, ReceiverType
from evenkeel_collector.alerts.book import AlertBook

ANNOTATION = "evidence"
GATHERING = "is being gathered"
# These keep one record of an alert, and a second notification under the same id changes it. To
# anybody else it would be a second message, or a second page.
_UPDATED = (ReceiverType.WEBHOOK, ReceiverType.GENERIC, ReceiverType.ALERTMANAGER)
# What cannot be updated later may wait this long for its evidence.
HOLD_NS = 5 * 10**9
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
            "SELECT alert_id, fired_ns FROM evidence WHERE facts IS NULL"
        )
        return {row["alert_id"]: row["fired_ns"] for row in rows}

    def add(self, alert_id: str, facts: Mapping[str, str], now_ns: int) -> None:
        """Complete a firing: its state, its history, and the notifications that wait."""
        of_alert = (f"{alert_id}-firing", f"{alert_id}-resolved")
        with self._book.transaction():
            self._connection.execute(
                "UPDATE evidence SET facts = ?, gathered_ns = ? WHERE alert_id = ?",
                (json.dumps(dict(facts)), now_ns, alert_id),
            )
            for table in ("alerts", "transitions"):
                for row in self._connection.execute(
                    f"SELECT rowid, details FROM {table} WHERE alert_id = ?", (alert_id,)
                ).fetchall():
                    details = json.loads(row["details"])
                    details["annotations"] = complete(details["annotations"], facts)
                    self._connection.execute(
                        f"UPDATE {table} SET details = ? WHERE rowid = ?",
                        (json.dumps(details), row["rowid"]),
                    )
            for table, which in (("group_members", "1"), ("outbox", "state = 'waiting'")):
                for row in self._connection.execute(
                    f"SELECT number, body FROM {table} WHERE notification_id IN (?, ?) AND {which}",
                    of_alert,
                ).fetchall():
                    self._connection.execute(
                        f"UPDATE {table} SET body = ? WHERE number = ?",
                        (_completed_body(row["body"], facts), row["number"]),
                    )
            # What was held back for the evidence need not wait any longer.
            self._connection.execute(
                "UPDATE outbox SET next_attempt_ns = min(next_attempt_ns, created_ns)"
                " WHERE notification_id IN (?, ?) AND state = 'waiting' AND num_attempts = 0",
                of_alert,
            )

    def update_receivers(self, receivers: Mapping[str, Receiver], now_ns: int) -> int:
        """Owe an update to those that were sent a firing without its evidence; return how many.

        Nobody hears of a firing that has ended, or of which another notification is owed or sent.
        """
        rows = self._connection.execute(
            "SELECT alert_id, facts, gathered_ns FROM evidence WHERE facts IS NOT NULL"
        ).fetchall()
        num_owed = 0
        for row in rows:
            facts = json.loads(row["facts"])
            with self._book.transaction():
                # That there is no evidence is worth no notification.
                if set(facts) - {ANNOTATION}:
                    num_owed += self._update(row["alert_id"], facts, receivers)
                if now_ns - row["gathered_ns"] >= _SETTLE_NS:
                    self._connection.execute(
                        "DELETE FROM evidence WHERE alert_id = ?", (row["alert_id"],)
                    )
        return num_owed

    def _update(
        self, alert_id: str, facts: Mapping[str, str], receivers: Mapping[str, Receiver]
    ) -> int:
        notifications: list[sqlite3.Row] = self._connection.execute(
            "SELECT number, receiver, body FROM outbox AS told"
            " WHERE notification_id = ? AND state = 'delivered' AND alert_id IN"
            " (SELECT alert_id FROM alerts WHERE state = 'firing') AND NOT EXISTS ("
            "SELECT 1 FROM outbox AS later WHERE later.receiver = told.receiver"
            " AND later.fingerprint = told.fingerprint AND later.number > told.number)",
            (f"{alert_id}-firing",),
        ).fetchall()
        num_owed = 0
        for notification in notifications:
            receiver = receivers.get(notification["receiver"])
            body = _completed_body(notification["body"], facts)
            if receiver is None or not is_updated(receiver) or body == notification["body"]:
                continue
            self._connection.execute(
                "UPDATE outbox SET state = 'waiting', body = ?, num_attempts = 0,"
                " next_attempt_ns = created_ns, ended_ns = NULL WHERE number = ?",
                (body, notification["number"]),
            )
            num_owed += 1
        return num_owed


def _completed_body(body: str, facts: Mapping[str, str]) -> str:
    """Return the notification with the evidence; unchanged if it has it."""
    message = json.loads(body)
    for alert in message["alerts"]:
        if alert["annotations"].get(ANNOTATION) != GATHERING:
            return body
        alert["annotations"] = complete(alert["annotations"], facts)
    message["commonAnnotations"] = complete(message["commonAnnotations"], facts)
    return json.dumps(message, ensure_ascii=False)
