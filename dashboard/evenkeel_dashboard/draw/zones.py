"""The time zone in which times are shown: UTC, unless the reader chose another.

The zone is kept per script run (a context variable), because every time on a page is in one zone.
"""

from __future__ import annotations

from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from evenkeel.times import to_datetime

LOCAL = "local"
_zone: ContextVar[tzinfo] = ContextVar("zone", default=UTC)


def use_zone(zone: tzinfo) -> None:
    """Show times in a zone from now on, in this script run."""
    _zone.set(zone)


def shown_zone() -> tzinfo:
    """Return the zone in which times are shown."""
    return _zone.get()


def find_zone(name: str, browser: str | None) -> tzinfo | None:
    """Return a zone by its name in the URL: utc, local (the browser's) or an IANA name.

    None if there is no such zone; "" is UTC, and so is "local" of a browser without a zone.
    """
    if name.lower() in ("", "utc"):
        return UTC
    wanted = (browser or "UTC") if name.lower() == LOCAL else name
    try:
        return ZoneInfo(wanted)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def zone_key() -> str:
    """Return the name of the zone for a browser's date functions: UTC, Europe/Berlin."""
    return str(getattr(shown_zone(), "key", "UTC"))


def in_zone(unix_ms: int) -> datetime:
    """Return Unix milliseconds as a time in the shown zone."""
    return to_datetime(unix_ms * 10**6, shown_zone())


def typed_time(unix_ms: int) -> str:
    """Return Unix milliseconds as people type them, with the offset where an hour occurs twice."""
    moment = in_zone(unix_ms)
    is_twice = moment.utcoffset() != moment.replace(fold=1 - moment.fold).utcoffset()
    return f"{moment:%Y-%m-%d %H:%M:%S%z}" if is_twice else f"{moment:%Y-%m-%d %H:%M:%S}"


def zone_name(moment: datetime) -> str:
    """Return the short name of a time's zone: UTC, CET, or UTC−3 where a zone has no letters."""
    name = moment.tzname() or "UTC"
    if name[0] not in "+-":
        return name
    hours, minutes = name[1:3].lstrip("0") or "0", name[3:5].replace("00", "")
    return f"UTC{'−' if name[0] == '-' else '+'}{hours}{':' + minutes if minutes else ''}"


def current_zone_name() -> str:
    """Return the short name of the shown zone at present, for a header or a field."""
    return zone_name(now_in_zone())


def now_in_zone() -> datetime:
    """Return the current time in the shown zone."""
    return datetime.now(shown_zone())
