"""What receivers are still owed, and what became of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from collector.alert_book import AlertBook


@dataclass(frozen=True, slots=True)
class Letter:
    """One notification in the outbox; `num_attempts` counts those that failed."""

    number: int
    notification_id: str
    receiver: str
    status: str
    body: str
    num_attempts: int
    created_ns: int
    last_error: str | None


class Outbox:
    """The outbox of an alert book; belongs to the thread that opened the book."""

    def __init__(self, book: AlertBook) -> None:
        self._connection = book.connection

    def due(self, now_ns: int, limit: int = 100) -> list[Letter]:
        """Return what may be sent now, oldest first.

        Of one alert and receiver only the oldest waiting notification is due, so that nobody
        hears «resolved» before «firing».
        """
        rows = self._connection.execute(
            "SELECT * FROM outbox AS letter WHERE state = 'waiting' AND next_attempt_ns <= ?"
            " AND NOT EXISTS (SELECT 1 FROM outbox AS earlier WHERE earlier.state = 'waiting'"
            " AND earlier.receiver = letter.receiver AND earlier.fingerprint = letter.fingerprint"
            " AND earlier.number < letter.number) ORDER BY number LIMIT ?",
            (now_ns, limit),
        )
        return [_letter(row) for row in rows]

    def mark_delivered(self, number: int, now_ns: int, body: str | None = None) -> None:
        """The receiver accepted it, with this body: evidence may have completed it since."""
        self._connection.execute(
            "UPDATE outbox SET state = 'delivered', ended_ns = ?, last_error = NULL,"
            " body = coalesce(?, body) WHERE number = ?",
            (now_ns, body, number),
        )

    def mark_failed(self, number: int, error: str, next_attempt_ns: int) -> None:
        """An attempt failed; another follows."""
        self._connection.execute(
            "UPDATE outbox SET num_attempts = num_attempts + 1, last_error = ?,"
            " next_attempt_ns = ? WHERE number = ?",
            (error, next_attempt_ns, number),
        )

    def mark_dead(self, number: int, error: str, now_ns: int) -> None:
        """No further attempt: it stays as a dead letter until it is replayed."""
        self._connection.execute(
            "UPDATE outbox SET state = 'dead', num_attempts = num_attempts + 1, last_error = ?,"
            " ended_ns = ? WHERE number = ?",
            (error, now_ns, number),
        )

    def dead(self) -> list[Letter]:
        """Return the dead letters, oldest first."""
        rows = self._connection.execute("SELECT * FROM outbox WHERE state = 'dead' ORDER BY number")
        return [_letter(row) for row in rows]

    def replay(self, now_ns: int, number: int | None = None) -> int:
        """Make one or all dead letters due again, ids unchanged; return how many there were.

        Those stay dead whose receiver has heard a later one of the same alert: nobody shall hear
        «firing» after «resolved».
        """
        return self._connection.execute(
            "UPDATE outbox SET state = 'waiting', num_attempts = 0, next_attempt_ns = ?,"
            " ended_ns = NULL WHERE state = 'dead' AND (? IS NULL OR number = ?)"
            " AND NOT EXISTS (SELECT 1 FROM outbox AS later WHERE later.state = 'delivered'"
            " AND later.receiver = outbox.receiver AND later.fingerprint = outbox.fingerprint"
            " AND later.number > outbox.number)",
            (now_ns, number, number),
        ).rowcount

    def count_by_state(self) -> Mapping[str, int]:
        """Return how many notifications are waiting, delivered and dead."""
        rows = self._connection.execute("SELECT state, count(*) FROM outbox GROUP BY state")
        return {"waiting": 0, "delivered": 0, "dead": 0} | {row[0]: row[1] for row in rows}


def _letter(row: sqlite3.Row) -> Letter:
    return Letter(
        row["number"],
        row["notification_id"],
        row["receiver"],
        row["status"],
        row["body"],
        row["num_attempts"],
        row["created_ns"],
        row["last_error"],
    )
