"""Corrections: spans of time that do not count towards an SLO, and who said so and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import insert, select, update

from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.tables import as_row, corrections

MINUTE_NS = 60 * 10**9


class CorrectionReason(StrEnum):
    """Why events do not count."""

    MAINTENANCE = "maintenance"
    INCIDENT = "incident"


@dataclass(frozen=True, slots=True)
class Correction:
    """The events of [from_ns, until_ns) do not count; whole minutes, so that no bucket is split.

    Attributes:
        id: Unique.
        slo: The SLO's name; '' for all of them.
        from_ns: Unix nanoseconds, inclusive.
        until_ns: Unix nanoseconds, exclusive.
        reason: What kind of time it was.
        author: Who says so.
        comment: Why, for who reads the budget later.
        created_ns: When it was said.
        revoked_ns: When it was taken back; None: it is in force.
        revoked_by: Who took it back.
    """

    id: str
    slo: str
    from_ns: int
    until_ns: int
    reason: str
    author: str
    comment: str
    created_ns: int
    revoked_ns: int | None = None
    revoked_by: str | None = None

    def applies_to(self, slo: str) -> bool:
        """Return whether it is in force for the SLO."""
        return self.revoked_ns is None and self.slo in ("", slo)


class Corrections:
    """The corrections of an alert book; nothing is ever deleted."""

    def __init__(self, book: AlertBook) -> None:
        self._connection = book.connection

    def all(self) -> tuple[Correction, ...]:
        """Return every correction, also revoked ones, oldest span first."""
        rows = self._connection.execute(
            select(corrections).order_by(corrections.c.from_ns, corrections.c.id)
        )
        return tuple(Correction(*row) for row in rows)

    def add(self, correction: Correction) -> None:
        """Put a correction in force."""
        self._connection.execute(insert(corrections).values(as_row(correction)))

    def revoke(self, correction_id: str, author: str, now_ns: int) -> bool:
        """Take a correction back; return whether it was in force."""
        is_in_force = (corrections.c.id == correction_id) & corrections.c.revoked_ns.is_(None)
        revoked = update(corrections).where(is_in_force)
        values = {"revoked_ns": now_ns, "revoked_by": author}
        return self._connection.execute(revoked.values(values)).rowcount > 0


def corrections_of(slo: str, corrections: Iterable[Correction]) -> tuple[Correction, ...]:
    """Return those in force for one SLO."""
    return tuple(correction for correction in corrections if correction.applies_to(slo))


def is_corrected(corrections: Iterable[Correction], from_ns: int, until_ns: int) -> bool:
    """Return whether a bucket of time lies in a correction, or touches one."""
    return any(c.from_ns < until_ns and from_ns < c.until_ns for c in corrections)


def whole_minutes(from_ns: int, until_ns: int) -> tuple[int, int]:
    """Return the span widened to whole minutes."""
    return from_ns // MINUTE_NS * MINUTE_NS, -(-until_ns // MINUTE_NS) * MINUTE_NS
