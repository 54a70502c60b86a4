"""Moments as text and as Unix nanoseconds: reads 2026-11-20T10:00Z, writes …T10:00:00.250Z.

All is worked out in integers. A length of time is the matter of evenkeel/durations.py.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from evenkeel.errors import ConfigurationError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time_ns(text: str) -> int:
    """Return a moment such as 2026-11-20T10:00Z in Unix nanoseconds; without a zone it is UTC.

    A fraction of a second counts up to its sixth digit.

    Raises:
        ConfigurationError: If it is no time in ISO 8601.
    """
    try:
        return unix_ns(datetime.fromisoformat(text))
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is no time; expected one such as 2026-11-20T10:00Z"
        ) from None


def unix_ns(moment: datetime) -> int:
    """Return a moment in Unix nanoseconds; without a zone it is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1) * 1000


def to_datetime(time_ns: int, zone: tzinfo = UTC) -> datetime:
    """Return Unix nanoseconds as a moment in a time zone, rounded down to the microsecond."""
    return (_EPOCH + timedelta(microseconds=time_ns // 1000)).astimezone(zone)


def rfc3339(time_ns: int, timespec: str = "milliseconds") -> str:
    """Return Unix nanoseconds in UTC as RFC 3339, rounded down: 2026-11-20T10:00:00.250Z.

    Args:
        time_ns: The moment.
        timespec: How fine: "minutes" (which RFC 3339 lacks, but ISO 8601 has), "seconds",
            "milliseconds" or "microseconds".
    """
    return to_datetime(time_ns).replace(tzinfo=None).isoformat(timespec=timespec) + "Z"


def minute_text(time_ns: int, zone: tzinfo = UTC) -> str:
    """Return Unix nanoseconds for a person, in a time zone and to the minute: 2026-11-20 10:00."""
    return f"{to_datetime(time_ns, zone):%Y-%m-%d %H:%M}"
