"""Calendar periods in a time zone: the week, month, quarter or year that a moment belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from fractions import Fraction
from zoneinfo import ZoneInfo


class CalendarUnit(StrEnum):
    """A calendar period; the value is OpenSLO's letter."""

    DAY = "d"
    WEEK = "w"
    MONTH = "M"
    QUARTER = "Q"
    YEAR = "Y"


# What alert factors are worked out from: a factor that changed with February would surprise.
_NOMINAL_DAYS = {
    CalendarUnit.DAY: 1,
    CalendarUnit.WEEK: 7,
    CalendarUnit.MONTH: 30,
    CalendarUnit.QUARTER: 91,
    CalendarUnit.YEAR: 365,
}
_MOST_DAYS = {
    CalendarUnit.DAY: 1,
    CalendarUnit.WEEK: 7,
    CalendarUnit.MONTH: 31,
    CalendarUnit.QUARTER: 92,
    CalendarUnit.YEAR: 366,
}


@dataclass(frozen=True, slots=True)
class Calendar:
    """Periods that begin at local midnight: weeks on Monday, months on the 1st.

    Attributes:
        unit: The kind of period.
        zone: An IANA time zone.
    """

    unit: CalendarUnit
    zone: ZoneInfo

    @property
    def nominal_s(self) -> Fraction:
        """The length that alert factors are worked out from: 30 days for a month, and so on."""
        return Fraction(_NOMINAL_DAYS[self.unit] * 86400)

    @property
    def longest_s(self) -> Fraction:
        """No period is longer; a day may have 25 hours."""
        return Fraction(_MOST_DAYS[self.unit] * 86400 + 3600)

    def start_ns(self, now_ns: int) -> int:
        """Return when the period that holds `now_ns` began, in unix nanoseconds."""
        today = datetime.fromtimestamp(now_ns // 10**9, self.zone).date()
        return self._midnight_ns(_first_day(self.unit, today))

    def _midnight_ns(self, day: date) -> int:
        # Through UTC: where clocks change at midnight, the later, existing moment is meant.
        local = datetime(day.year, day.month, day.day, tzinfo=self.zone)
        moment = local.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        return int(moment / timedelta(seconds=1)) * 10**9


def _first_day(unit: CalendarUnit, day: date) -> date:
    match unit:
        case CalendarUnit.DAY:
            return day
        case CalendarUnit.WEEK:
            return day - timedelta(days=day.weekday())
        case CalendarUnit.MONTH:
            return day.replace(day=1)
        case CalendarUnit.QUARTER:
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case CalendarUnit.YEAR:
            return day.replace(month=1, day=1)
