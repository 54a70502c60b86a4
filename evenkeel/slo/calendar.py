"""Calendar periods in a time zone: the week, month, quarter or year that contains a time."""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from fractions import Fraction
from zoneinfo import ZoneInfo

from evenkeel.times import to_datetime, unix_ns


class CalendarUnit(StrEnum):
    """A calendar period; the value is OpenSLO's letter."""

    DAY = "d"
    WEEK = "w"
    MONTH = "M"
    QUARTER = "Q"
    YEAR = "Y"


# Nominal lengths for alert factors: a factor that changed in February would surprise.
_NOMINAL_DAYS = {
    CalendarUnit.DAY: 1,
    CalendarUnit.WEEK: 7,
    CalendarUnit.MONTH: 30,
    CalendarUnit.QUARTER: 91,
    CalendarUnit.YEAR: 365,
}
_MONTHS = {CalendarUnit.MONTH: 1, CalendarUnit.QUARTER: 3, CalendarUnit.YEAR: 12}
_MOST_DAYS = {
    CalendarUnit.DAY: 1,
    CalendarUnit.WEEK: 7,
    CalendarUnit.MONTH: 31,
    CalendarUnit.QUARTER: 92,
    CalendarUnit.YEAR: 366,
}


@dataclass(frozen=True, slots=True)
class Calendar:
    """Periods by local time: from a start, or weeks from Monday and months from the 1st, midnight.

    Attributes:
        unit: The kind of period.
        zone: An IANA time zone.
        count: Units per period; above 1 only with a start.
        start: Local time at which one period begins, which fixes all others; None: midnight of the
            unit's first day.
    """

    unit: CalendarUnit
    zone: ZoneInfo
    count: int = 1
    start: datetime | None = None

    @property
    def words(self) -> str:
        """The length in words, such as "month" or "2 weeks"."""
        unit = self.unit.name.lower()
        return unit if self.count == 1 else f"{self.count} {unit}s"

    @property
    def nominal_s(self) -> Fraction:
        """The nominal length used for alert factors: 30 days for a month, and so on."""
        return Fraction(_NOMINAL_DAYS[self.unit] * 86400 * self.count)

    @property
    def longest_s(self) -> Fraction:
        """The longest possible period; a day may have 25 hours."""
        return Fraction(_MOST_DAYS[self.unit] * 86400 * self.count + 3600)

    def start_ns(self, now_ns: int) -> int:
        """Return the start of the period that contains `now_ns`, in unix nanoseconds."""
        if self.start is not None:
            return self._start_from(self.start, now_ns)
        today = to_datetime(now_ns, self.zone).date()
        first = _first_day(self.unit, today)
        return self._moment_ns(datetime.combine(first, time()))

    def end_ns(self, now_ns: int) -> int:
        """Return the end of the period that contains `now_ns`, where the next one begins."""
        return self.start_ns(self.start_ns(now_ns) + int(self.longest_s * 10**9))

    def _start_from(self, start: datetime, now_ns: int) -> int:
        today = to_datetime(now_ns, self.zone).date()
        if self.unit in _MONTHS:
            months = (today.year - start.year) * 12 + today.month - start.month
            step = months // (_MONTHS[self.unit] * self.count)
        else:
            step = (today - start.date()).days // (_NOMINAL_DAYS[self.unit] * self.count)
        # The day determines the period, except in the hours before the start's time of day.
        for earlier in range(-1, 2):
            moment_ns = self._moment_ns(self._begin(start, step - earlier))
            if moment_ns <= now_ns:
                return moment_ns
        return self._moment_ns(self._begin(start, step - 2))

    def _begin(self, start: datetime, step: int) -> datetime:
        """Return the local start of a period: the month's last day if it lacks the start's day."""
        if self.unit not in _MONTHS:
            return start + timedelta(days=step * _NOMINAL_DAYS[self.unit] * self.count)
        year, month = divmod(start.month - 1 + step * _MONTHS[self.unit] * self.count, 12)
        year += start.year
        day = min(start.day, monthrange(year, month + 1)[1])
        return start.replace(year=year, month=month + 1, day=day)

    def _moment_ns(self, naive: datetime) -> int:
        # If clocks change at that time, use the later time, which exists.
        return unix_ns(naive.replace(tzinfo=self.zone))


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
