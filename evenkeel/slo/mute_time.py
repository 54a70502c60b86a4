"""A recurring span of local time: every day, or on some weekdays."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import time
from zoneinfo import ZoneInfo

from evenkeel.times import to_datetime


@dataclass(frozen=True, slots=True)
class MuteTime:
    """A daily span, on some weekdays.

    Attributes:
        weekdays: 0 is Monday; the day on which the span begins.
        from_: Local time, inclusive.
        until: Local time, exclusive; if at or before `from_`, it is on the next day.
        zone: An IANA time zone.
    """

    weekdays: tuple[int, ...]
    from_: time
    until: time
    zone: ZoneInfo

    def holds(self, now_ns: int) -> bool:
        """Return whether the time is within the span."""
        local = to_datetime(now_ns, self.zone)
        clock, weekday = local.time().replace(tzinfo=None), local.weekday()
        if self.from_ < self.until:
            return weekday in self.weekdays and self.from_ <= clock < self.until
        if clock >= self.from_:
            return weekday in self.weekdays
        return clock < self.until and (weekday - 1) % 7 in self.weekdays
