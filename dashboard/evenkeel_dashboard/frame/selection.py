"""A page's selection: the time range and filters, and how the URL encodes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, tzinfo
from math import ceil
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel.times import parse_time_ns, rfc3339, unix_ns
from evenkeel_dashboard.draw.window import Window

PRESETS_S = {
    "5m": 300,
    "15m": 900,
    "1h": 3_600,
    "6h": 21_600,
    "24h": 86_400,
    "7d": 604_800,
    "30d": 2_592_000,
}
DEFAULT_PRESET = "1h"
FILTERS = ("model", "tenant", "prompt", "slo_class")
ZONE = "tz"

_STEPS_S = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200)
_MAX_STEPS = 200
_MAX_SPANS = 50_000
_SLICES = 24
_REFRESH_S = ((3_600, 5), (21_600, 15))
_SLOWEST_REFRESH_S = 60
_SHORTEST_MS = 60_000
_LONGEST_MS = 366 * 86_400_000
_PAST_MS = 120_000
# February 2106, less a margin: the store's minutes end there, and later ones would read as of 1970.
END_MS = 4_294_900_000_000


@dataclass(frozen=True, slots=True)
class Selection:
    """Everything a link needs to show the same view.

    Attributes:
        preset: A name of `PRESETS_S`, for a range that ends now; ignored if `from_ms` is set.
        from_ms: Start of a fixed range, Unix milliseconds; None for a preset.
        to_ms: End of a fixed range.
        is_live: Whether the page refreshes itself; a fixed range never does.
        model: Only this model; "" is all. The other filters likewise.
        zone: Time zone of the times shown, as in the URL; "" is UTC.
        data_from_ms: When the stored data starts, not part of the URL: a range that ends now does
            not start earlier. None if unknown.
    """

    preset: str = DEFAULT_PRESET
    from_ms: int | None = None
    to_ms: int | None = None
    is_live: bool = True
    model: str = ""
    tenant: str = ""
    prompt: str = ""
    slo_class: str = ""
    zone: str = ""
    data_from_ms: int | None = None

    @classmethod
    def from_params(cls, params: Mapping[str, str]) -> Selection:
        """Return the selection in the URL's parameters; invalid values are ignored."""
        from_ms, to_ms = parse_time_ms(params.get("from", "")), parse_time_ms(params.get("to", ""))
        is_fixed = from_ms is not None and to_ms is not None and from_ms < to_ms
        preset = params.get("range", DEFAULT_PRESET)
        return cls(
            preset=preset if preset in PRESETS_S else DEFAULT_PRESET,
            from_ms=from_ms if is_fixed else None,
            to_ms=to_ms if is_fixed else None,
            is_live=params.get("live", "on") != "off",
            zone=params.get(ZONE, ""),
            model=params.get("model", ""),
            tenant=params.get("tenant", ""),
            prompt=params.get("prompt", ""),
            slo_class=params.get("slo_class", ""),
        )

    def to_params(self) -> dict[str, str]:
        """Return the URL's parameters; defaults are left out."""
        params: dict[str, str] = {}
        if self.from_ms is not None and self.to_ms is not None:
            params |= {"from": format_time_ms(self.from_ms), "to": format_time_ms(self.to_ms)}
        elif self.preset != DEFAULT_PRESET:
            params["range"] = self.preset
        if not self.is_live:
            params["live"] = "off"
        if self.zone:
            params[ZONE] = self.zone
        return params | {name: value for name, value in self.filters().items() if value}

    def filters(self) -> dict[str, str]:
        """Return the filters as query parameters; "" means no filter."""
        values: dict[str, Any] = asdict(self)
        return {name: values[name] for name in FILTERS}

    def filtered(self, name: str, value: str) -> Selection:
        """Return the same selection with one filter set."""
        values: dict[str, Any] = {name: value}
        return replace(self, **values)

    def unfiltered(self) -> Selection:
        """Return the same selection without filters."""
        values: dict[str, Any] = dict.fromkeys(FILTERS, "")
        return replace(self, **values)

    @property
    def is_fixed(self) -> bool:
        """Whether the range has a fixed start and end."""
        return self.from_ms is not None

    def is_past(self, now_ms: int) -> bool:
        """Return whether the range ended more than two minutes ago."""
        return self.to_ms is not None and self.to_ms < now_ms - _PAST_MS

    def window(self, now_ms: int) -> Window:
        """Return the window of the range at a given time.

        A live preset ends at the last shared refresh, so that all pages of its range read the same.
        A fixed range ends now if it reaches beyond, so that rates do not count time to come.
        """
        if self.from_ms is not None and self.to_ms is not None:
            latest_ms = max(now_ms // 1000 * 1000, self.from_ms + _SHORTEST_MS)
            to_ms = min(self.to_ms, latest_ms)
            return Window(self.from_ms, to_ms, step_s((to_ms - self.from_ms) / 1000))
        duration_s = PRESETS_S[self.preset]
        every_ms = 1000 * (self.refresh_s() or 1)
        to_ms = now_ms // every_ms * every_ms
        from_ms = to_ms - duration_s * 1000
        if self.data_from_ms is not None:
            from_ms = max(from_ms, min(self.data_from_ms, to_ms - _SHORTEST_MS))
        return Window(from_ms, to_ms, step_s((to_ms - from_ms) / 1000))

    def refresh_s(self) -> int | None:
        """Return how often the page refreshes, in seconds; None for never."""
        if not self.is_live or self.is_fixed:
            return None
        duration_s = PRESETS_S[self.preset]
        return next((s for limit_s, s in _REFRESH_S if duration_s <= limit_s), _SLOWEST_REFRESH_S)

    def narrowed(self, from_ms: int, to_ms: int) -> Selection:
        """Return the same selection with a fixed range."""
        return replace(self, from_ms=from_ms, to_ms=to_ms)

    def relative(self, preset: str) -> Selection:
        """Return the same selection with a range that ends now."""
        return replace(self, preset=preset, from_ms=None, to_ms=None)

    def shifted(self, now_ms: int, halves: int) -> Selection:
        """Return the selection moved by half-lengths of its range, back if negative.

        A range that would reach beyond now ends now.
        """
        window = self.window(now_ms)
        length_ms = window.to_ms - window.from_ms
        to_ms = min(window.to_ms + halves * length_ms // 2, now_ms)
        return self.narrowed(to_ms - length_ms, to_ms)

    def widened(self, now_ms: int) -> Selection:
        """Return the selection with a range about twice as long around the same time.

        A range that ends now becomes the next longer preset.
        """
        if not self.is_fixed:
            longer = list(PRESETS_S)[list(PRESETS_S).index(self.preset) + 1 :]
            return self.relative(longer[0]) if longer else self
        window = self.window(now_ms)
        length_ms = min(2 * (window.to_ms - window.from_ms), _LONGEST_MS)
        to_ms = min((window.from_ms + window.to_ms + length_ms) // 2, now_ms)
        return self.narrowed(to_ms - length_ms, to_ms)


def range_problem(params: Mapping[str, str]) -> str:
    """Return what is wrong with the range in the URL, and what is shown instead; "" if nothing."""
    shown = f"showing the last {DEFAULT_PRESET}"
    ends = {name: params[name] for name in ("from", "to") if params.get(name)}
    if ends:
        unread = [f"{name}={text}" for name, text in ends.items() if parse_time_ms(text) is None]
        if unread:
            return f"{' and '.join(unread)} is not a time such as 2026-11-20T10:00Z; {shown}."
        if len(ends) < 2:
            return f"A fixed range needs both from and to; {shown}."
        if Selection.from_params(params).from_ms is None:
            return f"The range ends before it starts; {shown}."
        return ""
    wanted = params.get("range", DEFAULT_PRESET)
    if wanted in PRESETS_S:
        return ""
    return f"{wanted!r} is not a range; {shown}. Ranges: {', '.join(PRESETS_S)}."


def slices(num_requests: float, window: Window, most: int = _MAX_SPANS) -> dict[str, int]:
    """Return the period, and the slice of it to read, to sample a range too large to read whole.

    The store is sorted by time: a slice is fast to read; every nth row would read everything.
    """
    share = max(1, ceil(num_requests / most))
    period_s = max(60, round(window.duration_s / _SLICES))
    return {"period_s": period_s, "slice_s": max(1, period_s // share)}


def step_s(duration_s: float) -> int:
    """Return the finest step that cuts a duration into at most 200 pieces."""
    return next((s for s in _STEPS_S if duration_s / s <= _MAX_STEPS), 86_400)


def parse_time_ms(text: str, zone: tzinfo = UTC) -> int | None:
    """Return an ISO 8601 time as Unix milliseconds; None if it is invalid.

    A time without a zone is in `zone`.
    """
    try:
        if zone is UTC:
            at_ms = parse_time_ns(text) // 10**6
        else:
            moment = datetime.fromisoformat(text)
            at_ms = unix_ns(moment if moment.tzinfo else moment.replace(tzinfo=zone)) // 10**6
    except (ConfigurationError, ValueError, OverflowError):
        return None
    return at_ms if 0 <= at_ms < END_MS else None


def format_time_ms(unix_ms: int) -> str:
    """Return Unix milliseconds as ISO 8601 in UTC, to the second."""
    return rfc3339(unix_ms * 10**6, "seconds")
