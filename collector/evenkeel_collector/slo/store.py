"""Reads and writes the store for SLO evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clickhouse_connect.driver.exceptions import ClickHouseError, DataError

from evenkeel.errors import StoreError, first_line
from evenkeel.prices.price_file import DEFAULT_CURRENCY
from evenkeel.slo.good_events import fill
from evenkeel.slo.model import COUNTED_APART, SESSIONS, Metric, Slo
from evenkeel.slo.query import (
    CountedIndicator,
    Span,
    event_parameters,
    feedback_parameters,
    filter_parameters,
    session_count_parameters,
    slo_parts,
)
from evenkeel.slo.series import SloStatus
from evenkeel.slo.spikes import LEVELS, PAST_LEVELS
from evenkeel.store import QUERIES, read_query
from evenkeel.times import to_datetime
from evenkeel_collector.alerts.alert import Transition
from evenkeel_collector.alerts.notification import fingerprint
from evenkeel_collector.alerts.state import State
from evenkeel_collector.slo.history import counted_apart
from evenkeel_collector.slo.judgement import (
    Buckets,
    Pattern,
    Rows,
    Wanted,
    matched_sql,
    read_together,
    wanted_patterns,
    wanted_values,
)
from evenkeel_collector.store.sql import MAX_QUERY_SIZE, quote

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_HERE = Path(__file__).parent
_ROWS = _HERE / "slo_rows.sql"
_SPIKES = _HERE / "spike_windows.sql"
_PIECE_NS = 86400 * 10**9
_FIGURES = ("sli", "budget_left_ratio", "factor", "long_s", "short_s", "burn_long", "burn_short")


class SloStore:
    """The store as SLO evaluation uses it; belongs to the thread that created the client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def counts(self, parts: Sequence[CountedIndicator], span: Span) -> list[Buckets]:
        """Return the events of each part per bucket.

        Each request is read once, one day at a time, regardless of the number of parts; more often
        only if they have more patterns than fit in one read.

        Raises:
            StoreError: If the store is unavailable or rejects the query.
        """
        found = [Buckets.covering(span, part.width_ns) for part in parts]
        of_requests = [i for i, part in enumerate(parts) if part.indicator.is_requests]
        for group in read_together([parts[i] for i in of_requests]):
            together = [of_requests[place] for place in group]
            wanted = wanted_values([parts[i] for i in together])
            patterns = wanted_patterns([parts[i] for i in together])
            for from_ns in range(span.from_ns, span.to_ns, _PIECE_NS):
                piece = replace(span, from_ns=from_ns, to_ns=min(from_ns + _PIECE_NS, span.to_ns))
                rows = Rows(self._read_rows(piece, wanted, patterns), wanted, patterns)
                for i in together:
                    rows.count(parts[i], found[i])
        self._count_feedback(parts, found, span)
        for i, part in enumerate(parts):
            metric = part.indicator.metric
            if metric in COUNTED_APART and metric is not Metric.FEEDBACK:
                for row in self._query(*counted_apart(part, span)):
                    _add(found[i], row)
        of_sessions = [i for i, part in enumerate(parts) if part.indicator.metric in SESSIONS]
        if of_sessions:
            parameters = session_count_parameters([parts[i] for i in of_sessions], span)
            for row in self._query(QUERIES / "slo_session_counts.sql", parameters):
                _add(found[of_sessions[row["slo"]]], row)
        return found

    def _count_feedback(
        self, parts: Sequence[CountedIndicator], found: Sequence[Buckets], span: Span
    ) -> None:
        """Count people's scores; the groups of a definition, such as versions, in one read."""
        alike: dict[object, list[int]] = {}
        for i, part in enumerate(parts):
            if part.indicator.metric is Metric.FEEDBACK:
                filters, columns = filter_parameters(part.indicator), sorted(part.indicator.select)
                key = (repr(filters), part.width_ns, tuple(columns))
                alike.setdefault(key, []).append(i)
        for together in alike.values():
            selects = [parts[i].indicator.select for i in together]
            columns = [c for c in sorted(selects[0]) if len({each[c] for each in selects}) > 1]
            sent = feedback_parameters(parts[together[0]], span, columns)
            places: dict[tuple[str, ...], list[int]] = {}
            for i, select in zip(together, selects, strict=True):
                places.setdefault(tuple(select[c] for c in columns), []).append(i)
            for row in self._query(_HERE / "slo_feedback_counts.sql", sent):
                for i in places.get(tuple(row["selected"]), ()):
                    _add(found[i], row)

    def check(self, now_ns: int) -> None:
        """Check that requests can be read at all, without counting any.

        Raises:
            StoreError: If the store is unavailable, or requests cannot be read.
        """
        self._read_rows(Span(now_ns, now_ns + 1, 0), wanted_values([]))

    def _read_rows(self, span: Span, wanted: Wanted, patterns: Sequence[Pattern] = ()) -> bytes:
        query = fill(read_query(_ROWS), matched=matched_sql(patterns, quote))
        parameters = {
            **wanted,
            "from_ns": span.from_ns,
            "to_ns": span.to_ns,
            "max_request_ns": span.max_request_ns,
        }
        try:
            return bytes(
                self._client.raw_query(
                    query,
                    parameters=parameters,
                    settings={"max_query_size": MAX_QUERY_SIZE},
                    fmt="RowBinary",
                )
            )
        except (ClickHouseError, OSError) as error:
            raise _refusal(_ROWS.name, error) from error

    def evidence(self, query: Path, slo: Slo, from_ns: int, to_ns: int) -> list[dict[str, Any]]:
        """Return the rows of one of the evidence queries.

        Raises:
            StoreError: If the store is unavailable or rejects the query.
        """
        rows = self._query(query, event_parameters(slo_parts(slo), Span(from_ns, to_ns)))
        # A row written by an older version may yield a mean that is not a number.
        return [{key: _known(value) for key, value in row.items()} for row in rows]

    def read(self, query: Path, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows of any query.

        Raises:
            StoreError: If the store is unavailable or rejects the query.
        """
        return self._query(query, parameters)

    def currency(self) -> str:
        """Return the currency of the bill.

        Raises:
            StoreError: If the store is unavailable or rejects the query.
        """
        (row,) = self._query(_HERE / "bill_currency.sql", {})
        return row["currency"] or DEFAULT_CURRENCY

    def spike_windows(self, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows of `spike_windows.sql`.

        Raises:
            StoreError: If the store is unavailable or rejects the query.
        """
        levels = PAST_LEVELS if parameters["is_past"] else LEVELS
        quantiles = f"quantilesExactWeighted({', '.join(str(level) for level in levels)})"
        return self._run(_SPIKES.name, fill(read_query(_SPIKES), quantiles=quantiles), parameters)

    def _query(
        self,
        query: Path,
        parameters: Mapping[str, Any],
        settings: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        return self._run(query.name, fill(read_query(query)), parameters, settings)

    def _run(
        self,
        name: str,
        sql: str,
        parameters: Mapping[str, Any],
        settings: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        try:
            result = self._client.query(
                sql, parameters=dict(parameters), settings=dict(settings or {})
            )
        except (ClickHouseError, OSError) as error:
            raise _refusal(name, error) from error
        return list(result.named_results())

    def write_status(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert one evaluation's rows.

        Raises:
            StoreError: If the store is unavailable or rejects the rows.
        """
        self._insert("slo_status", rows, {})

    def write_transition(self, transition: Transition) -> None:
        """Insert one transition; idempotent.

        Raises:
            StoreError: If the store is unavailable or rejects the row.
        """
        figures = {name: transition.details.figures.get(name) for name in _FIGURES}
        is_over = transition.state in (State.RESOLVED, State.INACTIVE)
        row = {
            "time": to_datetime(transition.time_ns),
            "transition_id": transition.id,
            "alert_id": transition.alert_id,
            "fingerprint": fingerprint(transition.details.labels),
            "slo": transition.slo,
            "severity": transition.severity,
            "from_state": transition.from_state.value,
            "state": transition.state.value,
            "starts_at": to_datetime(transition.starts_at_ns),
            "ends_at": to_datetime(transition.time_ns) if is_over else None,
            "silenced": transition.is_silenced,
            "labels": dict(transition.details.labels),
            "annotations": dict(transition.details.annotations),
            **figures,
        }
        self._insert("alert_history", [row], {"insert_deduplication_token": transition.id})

    def _insert(
        self, table: str, rows: Sequence[Mapping[str, Any]], settings: dict[str, Any]
    ) -> None:
        columns = list(rows[0])
        try:
            self._client.insert(
                table,
                [[row[column] for column in columns] for row in rows],
                column_names=columns,
                settings=settings,
            )
        except DataError:
            # Raised by the client, not the store: it cannot send a value in the row.
            raise
        except (ClickHouseError, OSError) as error:
            raise _refusal(table, error) from error


def _add(buckets: Buckets, row: Mapping[str, Any]) -> None:
    place = row["bucket"] - buckets.first
    buckets.total[place] += row["total_sum"]
    buckets.bad[place] += row["bad_sum"]


def status_row(
    slo: Slo, verdict: SloStatus, state: str, severity: str | None, now_ns: int
) -> dict[str, Any]:
    """Return a row of `slo_status`."""
    windows = [burn.window for burn in verdict.burns]
    return {
        **_definition(slo, now_ns),
        "state": state,
        "severity": severity,
        "good": verdict.counts.good,
        "total": verdict.counts.total,
        "sli": verdict.sli,
        "budget_left_ratio": verdict.budget_left_ratio,
        "windows.severity": [window.severity.value for window in windows],
        "windows.factor": [float(window.factor) for window in windows],
        "windows.long_s": [float(window.long_s) for window in windows],
        "windows.short_s": [float(window.short_s) for window in windows],
        "windows.burn_long": [burn.burn_long for burn in verdict.burns],
        "windows.burn_short": [burn.burn_short for burn in verdict.burns],
    }


def unknown_row(slo: Slo, now_ns: int) -> dict[str, Any]:
    """Return a row of `slo_status` for an SLO that could not be evaluated."""
    windows = ("severity", "factor", "long_s", "short_s", "burn_long", "burn_short")
    return {
        **_definition(slo, now_ns),
        "state": "unknown",
        "severity": None,
        "good": 0.0,
        "total": 0.0,
        "sli": None,
        "budget_left_ratio": None,
        **{f"windows.{name}": [] for name in windows},
    }


def _definition(slo: Slo, now_ns: int) -> dict[str, Any]:
    return {
        "time": to_datetime(now_ns),
        "slo": slo.name,
        "objective": slo.indicator.metric.value,
        "threshold_s": slo.indicator.threshold_s,
        "target": float(slo.target),
        "period_s": float(slo.scaled_period_s),
        "calendar_period": "" if slo.calendar is None else slo.period_words,
        "scale": float(slo.scale),
        "selector": dict(slo.indicator.select),
    }


def _refusal(name: str, error: BaseException) -> StoreError:
    return StoreError(f"{name} failed in the store: {first_line(error)}")


def _known(value: object) -> object:
    return None if isinstance(value, float) and not isfinite(value) else value
