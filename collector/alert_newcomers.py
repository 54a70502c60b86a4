"""Receivers that come into the file, or come back, while alerts fire that they do not know of."""

from __future__ import annotations

from collections.abc import Sequence

from collector.alert_book import AlertBook, Notification
from evenkeel.slo_receiver import place_of


def not_told(book: AlertBook, letters: Sequence[Notification], now_ns: int) -> list[Notification]:
    """Return those notifications of a firing whose receiver neither got it nor is owed it.

    What is dead because its receiver was not in the file for a while is made due again.
    """
    told: set[str] = set()
    for notification_id in {letter.notification_id for letter in letters}:
        rows = book.connection.execute(
            "SELECT receiver FROM outbox WHERE notification_id = :id AND state != 'dead'"
            " UNION SELECT receiver FROM group_members WHERE notification_id = :id",
            {"id": notification_id},
        )
        told |= {place_of(row[0]) for row in rows}
    untold = [letter for letter in letters if place_of(letter.receiver) not in told]
    for letter in untold:
        book.connection.execute(
            "UPDATE outbox SET state = 'waiting', num_attempts = 0, next_attempt_ns = ?,"
            " is_refused = 0, give_up_ns = NULL, ended_ns = NULL"
            " WHERE state = 'dead' AND notification_id = ? AND receiver = ?",
            (now_ns, letter.notification_id, letter.receiver),
        )
    return untold
