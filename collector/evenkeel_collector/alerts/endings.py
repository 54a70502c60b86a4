"""What becomes of notifications that wait when their alert ends, or when nobody wants them again.

Functions of a connection to the alert book, so that they can be part of a transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

_S = 10**9
# A firing that is not delivered yet is still tried for so long after its alert has ended: through
# a short outage a receiver hears of every change, after a long one only how things stand.
GRACE_NS = 300 * _S
# What is no longer about something that fires is tried for so long after its first failure.
LONGEST_NS = 24 * 3600 * _S


def end_firing(connection: sqlite3.Connection, alert_id: str, now_ns: int) -> None:
    """Note that a firing has ended: repetitions are withdrawn, the rest has little time left."""
    connection.execute(
        "UPDATE outbox SET state = 'withdrawn', ended_ns = ? WHERE state = 'waiting'"
        " AND alert_id = ? AND is_repetition",
        (now_ns, alert_id),
    )
    connection.execute(
        "UPDATE outbox SET give_up_ns = ? WHERE state = 'waiting' AND alert_id = ?"
        " AND status = 'firing' AND give_up_ns IS NULL",
        (now_ns + GRACE_NS, alert_id),
    )


def withdraw_repetitions(
    connection: sqlite3.Connection, unwanted: Collection[str], now_ns: int
) -> int:
    """Withdraw repetitions that wait of these alerts; return how many.

    Those of groups are left to the groups.
    """
    rows = connection.execute(
        "SELECT number, alert_id FROM outbox WHERE state = 'waiting' AND is_repetition"
    ).fetchall()
    numbers = [(now_ns, number) for number, alert_id in rows if alert_id in unwanted]
    connection.executemany(
        "UPDATE outbox SET state = 'withdrawn', ended_ns = ? WHERE number = ?", numbers
    )
    return len(numbers)


def settle_group(
    connection: sqlite3.Connection, number: int, is_firing: bool, now_ns: int, grace_ns: int
) -> None:
    """Give a group's waiting notification of a firing time while anything in the group fires."""
    if is_firing:
        connection.execute("UPDATE outbox SET give_up_ns = NULL WHERE number = ?", (number,))
        return
    connection.execute(
        "UPDATE outbox SET give_up_ns = coalesce(give_up_ns,"
        " CASE WHEN is_repetition THEN ? ELSE ? END) WHERE number = ?",
        (now_ns, now_ns + grace_ns, number),
    )


def last_told(
    connection: sqlite3.Connection, receiver: str, fingerprint: str
) -> tuple[bool, int] | None:
    """Return whether the newest notification of an alert waits, and when it was made or ended."""
    row = connection.execute(
        "SELECT state, coalesce(ended_ns, created_ns) FROM outbox WHERE receiver = ?"
        " AND fingerprint = ? ORDER BY number DESC LIMIT 1",
        (receiver, fingerprint),
    ).fetchone()
    return None if row is None else (row[0] == "waiting", int(row[1]))
