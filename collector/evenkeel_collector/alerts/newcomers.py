"""Receivers that come into the file, or come back, while alerts fire that they do not know of."""

from __future__ import annotations

from collections.abc import Sequence

from evenkeel.slo.receiver import place_of
from evenkeel_collector.alerts.book import AlertBook, Notification


def not_told(
    book: AlertBook, notifications: Sequence[Notification], now_ns: int
) -> list[Notification]:
    """Return those notifications of a firing whose receiver neither got it nor is owed it.

    What is dead because its receiver was not in the file for a while is made due again.
    """
    told: set[str] = set()
    for notification_id in {notification.notification_id for notification in notifications}:
        rows = book.connection.execute(
            "SELECT receiver FROM outbox WHERE notification_id = :id AND state != 'dead'"
            " UNION SELECT receiver FROM group_members WHERE notification_id = :id",
            {"id": notification_id},
        )
        told |= {place_of(row[0]) for row in rows}
    untold = [
        notification
        for notification in notifications
        if place_of(notification.receiver) not in told
    ]
    for notification in untold:
        book.connection.execute(
            "UPDATE outbox SET state = 'waiting', num_attempts = 0, next_attempt_ns = ?,"
            " is_refused = 0, give_up_ns = NULL, ended_ns = NULL"
            " WHERE state = 'dead' AND notification_id = ? AND receiver = ?",
            (now_ns, notification.notification_id, notification.receiver),
        )
    return untold
