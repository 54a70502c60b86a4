"""Formats the alert book for `evenkeel alerts list`, as text or JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenkeel.slo.matchers import matchers_text
from evenkeel.times import rfc3339
from evenkeel_collector.alerts.alert import Alert, Transition
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.groups import Grouper
from evenkeel_collector.alerts.notification import Notification
from evenkeel_collector.alerts.outbox import FailingReceiver
from evenkeel_collector.alerts.silence import Silence
from evenkeel_collector.alerts.state import State


@dataclass(frozen=True, slots=True)
class Listing:
    """A snapshot of the alert book."""

    alerts: tuple[Alert, ...]
    transitions: tuple[Transition, ...]
    silences: tuple[Silence, ...]
    now_ns: int
    dead_letters: tuple[Notification, ...]
    num_by_state: Mapping[str, int]
    acknowledged: Mapping[str, str]
    num_in_groups: int
    failing: Mapping[str, FailingReceiver]


def read_listing(path: Path, limit: int, now_ns: int) -> Listing:
    """Return the alert book's content, with the newest `limit` transitions.

    Raises:
        ConfigurationError: If there is no book at `path`.
    """
    with AlertBook(path, create=False) as book:
        return Listing(
            tuple(book.alerts()),
            tuple(book.transitions(limit)),
            tuple(book.silences_until(now_ns)),
            now_ns,
            tuple(book.dead()),
            book.count_by_state(),
            book.acknowledged(),
            Grouper(book).num_pending(),
            book.retried(),
        )


def listing_json(listing: Listing) -> dict[str, Any]:
    """Return the listing as JSON data."""
    return {
        "alerts": [
            {
                "slo": alert.slo,
                "severity": alert.severity,
                "state": alert.life.state.value,
                "acknowledged_by": listing.acknowledged.get(alert.alert_id),
                "silenced_until": _silenced_until(alert, listing),
                "since": _time(alert.life.since_ns),
                "labels": dict(alert.details.labels),
                "annotations": dict(alert.details.annotations),
            }
            for alert in listing.alerts
        ],
        "history": [
            {
                "id": transition.id,
                "time": rfc3339(transition.time_ns),
                "slo": transition.slo,
                "severity": transition.severity,
                "from": transition.from_state.value,
                "to": transition.state.value,
                "silenced": transition.is_silenced,
            }
            for transition in listing.transitions
        ],
        "silences": [
            {
                "id": silence.id,
                "slo": silence.slo,
                "matchers": [str(matcher) for matcher in silence.conditions()],
                "from": rfc3339(silence.from_ns),
                "until": rfc3339(silence.until_ns),
                "is_in_force": silence.from_ns <= listing.now_ns,
                "by": silence.author,
                "comment": silence.comment,
            }
            for silence in listing.silences
        ],
        "notifications": {**listing.num_by_state, "in_groups": listing.num_in_groups},
        "failing": [
            {
                "receiver": name,
                "undelivered": found.num_notifications,
                "since": rfc3339(found.since_ns),
                "error": found.error,
            }
            for name, found in listing.failing.items()
        ],
        "dead_letters": [
            {
                "number": notification.number,
                "id": notification.notification_id,
                "receiver": notification.receiver,
                "status": notification.status,
                "attempts": notification.num_attempts,
                "error": notification.last_error,
            }
            for notification in listing.dead_letters
        ],
    }


def listing_text(listing: Listing) -> str:
    """Return the listing as text, with problems first."""
    active = [a for a in listing.alerts if a.life.state in (State.FIRING, State.PENDING)]
    lines = [_alert_line(a, listing.acknowledged.get(a.alert_id)) for a in active] or [
        "nothing is firing"
    ]
    if listing.transitions:
        lines += ["", "recent changes, newest first:"]
        lines += [
            f"  {rfc3339(t.time_ns)}  {t.slo} {t.severity}: {t.from_state} -> {t.state}"
            + (" (silenced)" if t.is_silenced else "")
            for t in listing.transitions
        ]
    if listing.silences:
        lines += ["", "silences:"]
        lines += [_silence_line(silence, listing.now_ns) for silence in listing.silences]
    counts = listing.num_by_state
    lines += [
        "",
        f"notifications: {counts['waiting']} waiting, {counts['delivered']} delivered, "
        f"{counts['dead']} dead"
        + (f", {counts['withdrawn']} withdrawn" if counts.get("withdrawn") else "")
        + (f"; {listing.num_in_groups} changes wait in groups" if listing.num_in_groups else ""),
    ]
    lines += [
        f"  {name} does not accept notifications: {found.num_notifications} undelivered, "
        f"the oldest since {rfc3339(found.since_ns)}: {found.error}"
        for name, found in listing.failing.items()
    ]
    lines += [
        f"  dead letter {x.number} to {x.receiver} ({x.status}) after {x.num_attempts} attempts: "
        f"{x.last_error}"
        for x in listing.dead_letters
    ]
    if listing.dead_letters:
        lines.append("  retry them with: evenkeel alerts replay")
    return "\n".join(lines)


def _silenced_until(alert: Alert, listing: Listing) -> str | None:
    until_ns = [
        silence.until_ns
        for silence in listing.silences
        if silence.from_ns <= listing.now_ns and silence.covers(alert.slo, alert.details.labels)
    ]
    return rfc3339(max(until_ns)) if until_ns else None


def _silence_line(silence: Silence, now_ns: int) -> str:
    begins = f"from {rfc3339(silence.from_ns)} " if silence.from_ns > now_ns else ""
    author = f" ({silence.author})" if silence.author else ""
    return (
        f"  {silence.id}  {matchers_text(silence.conditions())} {begins}"
        f"until {rfc3339(silence.until_ns)} {silence.comment}".rstrip()
        + author
    )


def _alert_line(alert: Alert, taken_on_by: str | None) -> str:
    summary = alert.details.annotations.get("summary", "")
    return (
        f"{alert.life.state.value.upper()}  {alert.slo} {alert.severity} since "
        f"{_time(alert.life.since_ns)}"
        + (f", acknowledged by {taken_on_by}" if taken_on_by else "")
        + (f"\n  {summary}" if summary else "")
    )


def _time(time_ns: int) -> str | None:
    return rfc3339(time_ns) if time_ns else None
