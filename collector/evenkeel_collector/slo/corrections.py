"""Corrections: time ranges excluded from an SLO, with the author and the reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import insert, select, update

from evenkeel.times import MINUTE_NS
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.tables import as_row, corrections


class CorrectionReason(StrEnum):
    """Why a time range is excluded."""

    MAINTENANCE = "maintenance"
    INCIDENT = "incident"


@dataclass(frozen=True, slots=True)
class Correction:
    """A correction that excludes events in [from_ns, until_ns), in whole minutes.

    Attributes:
        id: Unique.
        slo: The SLO's name; '' means every SLO.
        from_ns: Unix nanoseconds, inclusive.
        until_ns: Unix nanoseconds, exclusive.
        reason: The kind of exclusion.
        author: Who made it.
        comment: Why, for later readers of the budget.
        created_ns: When it was made.
        revoked_ns: When it was revoked; None while in force.
        revoked_by: Who revoked it.
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
    """The corrections in an alert book; none is ever deleted."""

    def __init__(self, book: AlertBook) -> None:
        self._connection = book.connection

    def all(self) -> tuple[Correction, ...]:
        """Return every correction, including revoked ones, oldest range first."""
        rows = self._connection.execute(
            select(corrections).order_by(corrections.c.from_ns, corrections.c.id)
        )
        return tuple(Correction(*row) for row in rows)

    def add(self, correction: Correction) -> None:
        """Add a correction."""
        self._connection.execute(insert(corrections).values(as_row(correction)))

    def revoke(self, correction_id: str, author: str, now_ns: int) -> bool:
        """Revoke a correction; return whether it was in force."""
        is_in_force = (corrections.c.id == correction_id) & corrections.c.revoked_ns.is_(None)
        revoked = update(corrections).where(is_in_force)
        values = {"revoked_ns": now_ns, "revoked_by": author}
        return self._connection.execute(revoked.values(values)).rowcount > 0


def corrections_of(slo: str, corrections: Iterable[Correction]) -> tuple[Correction, ...]:
    """Return the corrections in force for one SLO."""
    return tuple(correction for correction in corrections if correction.applies_to(slo))


def is_corrected(corrections: Iterable[Correction], from_ns: int, until_ns: int) -> bool:
    """Return whether a time bucket overlaps a correction."""
    return any(c.from_ns < until_ns and from_ns < c.until_ns for c in corrections)


def whole_minutes(from_ns: int, until_ns: int) -> tuple[int, int]:
    """Return the range widened to whole minutes."""
    return from_ns // MINUTE_NS * MINUTE_NS, -(-until_ns // MINUTE_NS) * MINUTE_NS
