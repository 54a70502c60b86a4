"""Timestamps as text and as Unix nanoseconds: reads 2026-11-20T10:00Z, writes …T10:00:00.250Z.

All arithmetic uses integers. For lengths of time, see evenkeel/durations.py.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from evenkeel.errors import ConfigurationError

MINUTE_NS = 60 * 10**9

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Their nanoseconds are integers of 64 bits, as databases keep them.
YEARS = range(1678, 2262)


def parse_time_ns(text: str) -> int:
    """Parse a time such as 2026-11-20T10:00Z into Unix nanoseconds; UTC if it has no zone.

    Fractions of a second are read to six digits.

    Raises:
        ConfigurationError: If it is not an ISO 8601 time, or of a year outside `YEARS`.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not a time; expected one such as 2026-11-20T10:00Z"
        ) from None
    if moment.year not in YEARS:
        raise ConfigurationError(f"{text!r} is not a time of the years {YEARS[0]} to {YEARS[-1]}")
    return unix_ns(moment)


def unix_ns(moment: datetime) -> int:
    """Convert a datetime to Unix nanoseconds; UTC if it has no zone."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1) * 1000


def to_datetime(time_ns: int, zone: tzinfo = UTC) -> datetime:
    """Convert Unix nanoseconds to a datetime in a time zone, rounded down to the microsecond."""
    return (_EPOCH + timedelta(microseconds=time_ns // 1000)).astimezone(zone)


def rfc3339(time_ns: int, timespec: str = "milliseconds") -> str:
    """Format Unix nanoseconds in UTC as RFC 3339, rounded down: 2026-11-20T10:00:00.250Z.

    Args:
        time_ns: The time.
        timespec: The precision: "minutes" (which RFC 3339 lacks, but ISO 8601 has), "seconds",
            "milliseconds" or "microseconds".
    """
    return to_datetime(time_ns).replace(tzinfo=None).isoformat(timespec=timespec) + "Z"


def minute_text(time_ns: int, zone: tzinfo = UTC) -> str:
    """Format Unix nanoseconds for people, in a time zone and to the minute: 2026-11-20 10:00."""
    return f"{to_datetime(time_ns, zone):%Y-%m-%d %H:%M}"
