"""What receivers are still owed, and what became of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.endings import LONGEST_NS
from evenkeel_collector.alerts.evidence import HOLD_NS

# A receiver may ask for an hour.
_LONGEST_WAIT_NS = 3600 * 10**9


@dataclass(frozen=True, slots=True)
class QueuedNotification:
    """One notification in the outbox; `num_attempts` counts those that failed."""

    number: int
    notification_id: str
    receiver: str
    status: str
    body: str
    num_attempts: int
    created_ns: int
    last_error: str | None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Failing:
    """What one receiver does not take; `since_ns` is when the oldest of it was written."""

    num_notifications: int
    since_ns: int
    error: str | None


class Outbox:
    """The outbox of an alert book; belongs to the thread that opened the book."""

    def __init__(self, book: AlertBook) -> None:
        self._connection = book.connection

    def due(
        self, now_ns: int, limit: int = 100, receiver: str | None = None
    ) -> list[QueuedNotification]:
        """Return what may be sent now, oldest first: to one receiver, or to all.

        Of one alert and receiver only the oldest waiting notification is due, so that nobody
        hears «resolved» before «firing». What lies further ahead than anything ever waits was
        written by a clock that has been set back, and is due.
        """
        rows = self._connection.execute(
            "SELECT * FROM outbox WHERE number IN (SELECT min(number)"
            " FROM outbox INDEXED BY outbox_waiting WHERE state = 'waiting'"
            + (" AND receiver = :receiver" if receiver is not None else "")
            + " GROUP BY receiver, fingerprint) AND (next_attempt_ns <= :now OR next_attempt_ns >"
            " :now + CASE WHEN num_attempts THEN :longest ELSE :hold END)"
            " ORDER BY number LIMIT :limit",
            {
                "now": now_ns,
                "receiver": receiver,
                "limit": limit,
                "longest": _LONGEST_WAIT_NS,
                "hold": HOLD_NS,
            },
        )
        return [_notification(row) for row in rows]

    def receivers(self) -> list[str]:
        """Return the names of those who are owed something."""
        rows = self._connection.execute(
            "SELECT DISTINCT receiver FROM outbox WHERE state = 'waiting'"
        )
        return [row[0] for row in rows]

    def overdue(self, receiver: str, now_ns: int) -> list[QueuedNotification]:
        """Return what is not tried any more: what fired has ended, or the time is over."""
        rows = self._connection.execute(
            "SELECT * FROM outbox WHERE state = 'waiting' AND receiver = ? AND give_up_ns <= ?"
            " ORDER BY number LIMIT 100",
            (receiver, now_ns),
        )
        return [_notification(row) for row in rows]

    def mark_delivered(self, number: int, now_ns: int, body: str | None = None) -> None:
        """The receiver accepted it, with this body: evidence may have completed it since."""
        self._connection.execute(
            "UPDATE outbox SET state = 'delivered', ended_ns = ?, last_error = NULL,"
            " is_refused = 0, body = coalesce(?, body) WHERE number = ?",
            (now_ns, body, number),
        )

    def mark_failed(
        self,
        number: int,
        error: str,
        next_attempt_ns: int,
        now_ns: int | None = None,
        is_refused: bool = False,
    ) -> None:
        """An attempt failed; another follows, unless it was withdrawn meanwhile.

        What is about no firing alert (any more) is tried for a day from its first failure on.
        """
        give_up_ns = (next_attempt_ns if now_ns is None else now_ns) + LONGEST_NS
        self._connection.execute(
            "UPDATE outbox SET num_attempts = num_attempts + 1, last_error = ?,"
            " next_attempt_ns = ?, is_refused = ?, give_up_ns = CASE"
            " WHEN give_up_ns IS NOT NULL THEN give_up_ns"
            " WHEN status = 'firing' AND (alert_id LIKE 'group%' OR EXISTS (SELECT 1 FROM alerts"
            " WHERE alerts.alert_id = outbox.alert_id AND alerts.state = 'firing')) THEN NULL"
            " ELSE ? END WHERE number = ? AND state = 'waiting'",
            (error, next_attempt_ns, is_refused, give_up_ns, number),
        )

    def mark_dead(self, number: int, error: str, now_ns: int) -> None:
        """No further attempt: it stays as a dead letter until it is replayed."""
        self._connection.execute(
            "UPDATE outbox SET state = 'dead', num_attempts = num_attempts + 1, last_error = ?,"
            " ended_ns = ? WHERE number = ? AND state = 'waiting'",
            (error, now_ns, number),
        )

    def give_up(self, notification: QueuedNotification, now_ns: int) -> str:
        """End what is overdue; return the state it ends in.

        A firing is withdrawn, for its end is told; anything else is a dead letter.
        """
        state = "withdrawn" if notification.status == "firing" else "dead"
        self._connection.execute(
            "UPDATE outbox SET state = ?, ended_ns = ? WHERE number = ? AND state = 'waiting'",
            (state, now_ns, notification.number),
        )
        return state

    def hasten(self, receiver: str, now_ns: int) -> None:
        """Make due what waits for a receiver that works again."""
        self._connection.execute(
            "UPDATE outbox SET next_attempt_ns = ? WHERE state = 'waiting' AND receiver = ?"
            " AND next_attempt_ns > ?",
            (now_ns, receiver, now_ns),
        )

    def failing(self, now_ns: int, patience_ns: int) -> dict[str, Failing]:
        """Return the receivers that refuse, or that did not take something for long, by name."""
        rows = self._connection.execute(
            "SELECT receiver, count(*) AS num, min(created_ns) AS since_ns,"
            " max(last_error) AS error FROM outbox WHERE num_attempts > 0 AND ("
            "(state = 'waiting' AND (is_refused OR created_ns <= ?))"
            " OR (state = 'dead' AND is_refused AND NOT EXISTS (SELECT 1 FROM outbox AS later"
            " WHERE later.receiver = outbox.receiver AND later.state = 'delivered'"
            " AND later.ended_ns >= outbox.ended_ns))) GROUP BY receiver",
            (now_ns - patience_ns,),
        )
        return {row["receiver"]: Failing(row["num"], row["since_ns"], row["error"]) for row in rows}

    def dead(self) -> list[QueuedNotification]:
        """Return the dead letters, oldest first."""
        rows = self._connection.execute("SELECT * FROM outbox WHERE state = 'dead' ORDER BY number")
        return [_notification(row) for row in rows]

    def replay(self, now_ns: int, number: int | None = None) -> int:
        """Make one or all dead letters due again, ids unchanged; return how many there were.

        Those stay dead whose receiver has heard a later one of the same alert: nobody shall hear
        «firing» after «resolved».
        """
        return self._connection.execute(
            "UPDATE outbox SET state = 'waiting', num_attempts = 0, next_attempt_ns = ?,"
            " is_refused = 0, give_up_ns = NULL, ended_ns = NULL"
            " WHERE state = 'dead' AND (? IS NULL OR number = ?)"
            " AND NOT EXISTS (SELECT 1 FROM outbox AS later WHERE later.state = 'delivered'"
            " AND later.receiver = outbox.receiver AND later.fingerprint = outbox.fingerprint"
            " AND later.number > outbox.number)",
            (now_ns, number, number),
        ).rowcount

    def count_by_state(self) -> Mapping[str, int]:
        """Return how many notifications are waiting, delivered, dead, and withdrawn if any are."""
        rows = self._connection.execute("SELECT state, count(*) FROM outbox GROUP BY state")
        return {"waiting": 0, "delivered": 0, "dead": 0} | {row[0]: row[1] for row in rows}


def _notification(row: sqlite3.Row) -> QueuedNotification:
    return QueuedNotification(
        row["number"],
        row["notification_id"],
        row["receiver"],
        row["status"],
        row["body"],
        row["num_attempts"],
        row["created_ns"],
        row["last_error"],
        row["fingerprint"],
    )
