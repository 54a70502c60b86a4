"""Drafted and accepted tokens by draft position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Position:
    """Drafted and accepted tokens at one draft position, counted from 1."""

    number: int
    drafted: int
    accepted: int

    @property
    def rate(self) -> float | None:
        """Accepted / drafted; None if nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None


def positions(row: Row) -> list[Position]:
    """Return drafted and accepted tokens by draft position; [] without speculation."""
    pairs = zip(row["drafted_by_position"], row["accepted_by_position"], strict=False)
    return [Position(number, int(d), int(a)) for number, (d, a) in enumerate(pairs, start=1)]
