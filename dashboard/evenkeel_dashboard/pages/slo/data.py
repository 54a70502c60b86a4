"""Reads the data of the SLO page: an SLO's events by hour, day, minute and cohort."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import streamlit as st

from evenkeel.slo.backtest import BacktestResult, replay
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.groups import with_groups
from evenkeel.slo.model import SELECTOR_COLUMNS, SESSIONS, Group, Slo
from evenkeel.slo.query import (
    Span,
    count_parameters,
    event_parameters,
    session_count_parameters,
    slo_parts,
)
from evenkeel.store import QUERIES
from evenkeel.times import MINUTE_NS
from evenkeel.watched_file import Stamp, file_stamp
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.collector_api import CollectorError, ask_json
from evenkeel_dashboard.frame.contents import num_requests, range_of
from evenkeel_dashboard.frame.page import now_ms
from evenkeel_dashboard.frame.selection import Selection, parse_time_ms
from evenkeel_dashboard.frame.signing_in import identity, settings
from evenkeel_dashboard.pages.slo.model import (
    DAY_MS,
    MINUTE_MS,
    Bucket,
    buckets,
    draft,
    minutes,
    outside,
    whole_minutes,
)

_HERE = Path(__file__).parent
Read = Callable[[Path, reading.Parameters], reading.Rows]
HOUR_NS = 3600 * 10**9
LONGEST_DRAFT_MS = 7 * DAY_MS
# Above this, reading requests individually is too slow for a page.
MAX_JUDGED = 400_000
# To find who burned the budget, requests are judged with all their attributes.
MAX_BURNED = 150_000


def read_slos() -> list[Slo]:
    """Return the SLOs of the `--slos` file, including those of groups; [] without a file.

    Raises:
        ConfigurationError: If the file is wrong.
        StoreError: If an SLO is grouped and the store is unreachable.
    """
    path = settings().slos
    if path is None:
        return []
    written = _kept_slos(str(path), file_stamp(path))
    now_ns = now_ms() // MINUTE_MS * MINUTE_MS * 1_000_000
    return with_groups(
        written, lambda query, sent: reading.slow_rows_later(query, _hashable(sent))(), now_ns
    )


def _read_file(path: str, stamp: Stamp | None) -> list[Slo]:
    """Return the SLOs of a file, cached per version stamp of the file."""
    return list(read_slo_file(Path(path)).slos)


_kept_slos: Callable[[str, Stamp | None], list[Slo]] = st.cache_data(
    show_spinner=False, max_entries=4
)(_read_file)


def is_counted(slo: Slo) -> bool:
    """Return whether an SLO judges individual requests; others have no requests to show."""
    return slo.slicing is None and all(m.indicator.is_requests for m in slo.indicator.parts)


def is_of_sessions(slo: Slo) -> bool:
    """Return whether an SLO judges sessions; they are on a page of their own."""
    return all(member.indicator.metric in SESSIONS for member in slo.indicator.parts)


def read_buckets(slo: Slo, from_ms: int, to_ms: int, width_ns: int) -> list[Bucket]:
    """Return an SLO's events in buckets; past days are read once and cached.

    For very many requests, hourly buckets come from the rollup, which counts events by arrival.

    Raises:
        StoreError: If the store is unreachable or refuses a query.
    """
    today_ms = min(to_ms, max(from_ms, now_ms() // DAY_MS * DAY_MS))
    is_busy = width_ns >= HOUR_NS and (
        num_requests(Selection(), Window(from_ms, to_ms, 60)) > MAX_JUDGED
    )
    # Start both queries before waiting for the first.
    begun = [
        _counts_later(slo, Window(begin_ms, end_ms, 60), width_ns, read, is_busy)
        for begin_ms, end_ms, read in (
            (from_ms, today_ms, reading.slow_rows_later),
            (today_ms, to_ms, reading.rows_later),
        )
        if begin_ms < end_ms
    ]
    weights = [float(member.weight) for member in slo.indicator.parts]
    return buckets([row for counts in begun for row in counts()], weights, width_ns)


def _counts_later(
    slo: Slo, window: Window, width_ns: int, read: Read, is_busy: bool
) -> reading.Rows:
    span = Span(window.from_ms * 1_000_000, window.to_ms * 1_000_000)
    parts = slo_parts(slo, width_ns)
    if is_of_sessions(slo):
        return read(
            QUERIES / "slo_session_counts.sql", _hashable(session_count_parameters(parts, span))
        )
    parameters = _hashable(count_parameters(parts, span))
    if not is_busy:
        return read(QUERIES / "slo_counts.sql", parameters)
    group = Group(slo.name, {}, 0) if slo.group is None else slo.group
    rolled: reading.Parameters = {
        "slo_name": group.definition,
        "width_s": width_ns // 10**9,
        **{column: group.values.get(column, "") for column in SELECTOR_COLUMNS},
    }
    counted = read(_HERE / "slo_rollup_counts.sql", {**range_of(window), **rolled})
    # The rollup has no data from before it started to count this SLO.
    return lambda: counted() or read(QUERIES / "slo_counts.sql", parameters)()


@dataclass(frozen=True, slots=True)
class BudgetSpend:
    """The cohorts and causes that spent an SLO's budget in a window.

    Attributes:
        cohorts: Valid and bad events by cohort of each dimension.
        causes: Time of bad and good events by phase, and outcomes of the bad ones.
        requests: The requests that spent it, worst first.
    """

    cohorts: list[dict[str, Any]]
    causes: dict[str, Any]
    requests: list[dict[str, Any]]


def spent_later(
    slo: Slo, window: Window, spans_ms: Sequence[tuple[int, int]]
) -> Callable[[], BudgetSpend]:
    """Start reading who spent an SLO's budget in a `readable` window, without corrected spans."""
    span = Span(window.from_ms * 1_000_000, window.to_ms * 1_000_000)
    corrected = whole_minutes(spans_ms, window.from_ms, window.to_ms)
    left_out: reading.Parameters = {
        "corrected_from_ns": tuple(begin * 1_000_000 for begin, _ in corrected),
        "corrected_to_ns": tuple(end * 1_000_000 for _, end in corrected),
    }
    events = _hashable(event_parameters(slo_parts(slo), span))
    begun = reading.rows_later(_HERE / "slo_spent.sql", {**events, **left_out})

    def spent() -> BudgetSpend:
        rows = begun()
        causes = next((row for row in rows if not row["dimension"]), {})
        named = {
            "models": tuple(causes.get("worst_model", ())),
            "times_ns": tuple(causes.get("worst_ns", ())),
            "ids": tuple(causes.get("worst_id", ())),
        }
        return BudgetSpend(
            cohorts=[row for row in rows if row["dimension"]],
            causes=causes,
            requests=reading.rows(_HERE / "requests_named.sql", named) if named["ids"] else [],
        )

    return spent


def readable(window: Window, most: int = MAX_JUDGED) -> Window:
    """Return the newest part of a window that is small enough to judge request by request."""
    stored = num_requests(Selection(), window)
    if stored <= most:
        return window
    kept_ms = int((window.to_ms - window.from_ms) * most / stored)
    return replace(window, from_ms=(window.to_ms - kept_ms) // 60_000 * 60_000)


def read_corrections() -> list[dict[str, Any]] | None:
    """Return the corrections; None if the collector does not answer or refuses."""
    try:
        found = ask_json(settings().collector_url, "corrections", identity().token)
    except CollectorError:
        return None
    return list(found.get("corrections", []))


def corrected_spans_ms(
    slo: str, corrections: Sequence[dict[str, Any]] | None
) -> list[tuple[int, int]]:
    """Return the spans excluded from an SLO by corrections."""
    return [
        (parse_time_ms(c["from"]) or 0, parse_time_ms(c["until"]) or 0)
        for c in corrections or ()
        if c["revoked_by"] is None and c["slo"] in ("", slo)
    ]


def draft_window(window: Window) -> Window:
    """Return the part of a range that drafts are replayed over: a week, less if it is very busy.

    Raises:
        StoreError: If the store is unreachable or refuses a query.
    """
    begin_ms = max(window.from_ms, window.to_ms - LONGEST_DRAFT_MS)
    return readable(replace(window, from_ms=begin_ms))


def read_draft(
    slo: Slo, tried: Slo, window: Window, spans_ms: Sequence[tuple[int, int]]
) -> tuple[BacktestResult, BacktestResult]:
    """Return the replay of the current and of the drafted SLO over a `draft_window`.

    Raises:
        ConfigurationError: If its windows cannot be replayed on minutes.
        StoreError: If the store is unreachable or refuses a query.
    """
    from_ms = window.from_ms // 60_000 * 60_000
    to_ms = window.to_ms // 60_000 * 60_000
    own = draft(slo, slo.indicator.threshold_s, slo.target)
    both = (own, own) if tried == own else (own, tried)
    first, second = (
        replay(
            one, minutes(outside(read_buckets(one, from_ms, to_ms, MINUTE_NS), spans_ms, 60_000))
        )
        for one in both
    )
    return first, second


def _hashable(parameters: dict[str, object]) -> dict[str, Any]:
    return {name: _as_tuples(value) for name, value in parameters.items()}


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
