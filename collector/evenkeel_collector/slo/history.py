"""Counts an SLO's events in a past time range, as stored now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any, Protocol

from evenkeel.slo.burn_rates import Counts
from evenkeel.slo.model import SESSIONS, Metric, Slo
from evenkeel.slo.query import (
    CountedIndicator,
    Span,
    cost_parameters,
    count_parameters,
    eval_parameters,
    feedback_parameters,
    session_count_parameters,
    slo_parts,
)
from evenkeel.store import QUERIES
from evenkeel.times import unix_ns
from evenkeel_collector.slo.corrections import Correction, is_corrected

_HERE = Path(__file__).parent
_DAY_NS = 86400 * 10**9


class RowReader(Protocol):
    """Runs queries, as `evenkeel.store.Store` does."""

    def rows(
        self, query: Path, parameters: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        ...


def count_buckets(
    store: RowReader,
    slo: Slo,
    span: Span,
    width_ns: int,
    corrections: Sequence[Correction] = (),
) -> dict[int, Counts]:
    """Return events per bucket (Unix time // `width_ns`); empty buckets are absent.

    Reads one day at a time, and no day without requests. Buckets overlapping a correction are
    empty. If the SLO has time slices, `width_ns` is their length, and a bucket counts as its slice
    does.

    Raises:
        StoreError: If the store is unavailable or rejects a query.
    """
    found: dict[int, Counts] = {}
    for member, part in zip(slo.indicator.parts, slo_parts(slo, width_ns), strict=True):
        weight = float(member.weight)
        for piece in _pieces(store, part, span):
            for row in _rows(store, part, piece):
                bucket = int(row["bucket"])
                starts_ns = bucket * width_ns
                if is_corrected(corrections, starts_ns, starts_ns + width_ns):
                    continue
                before = found.get(bucket, Counts(0.0, 0.0))
                found[bucket] = Counts(
                    before.total + row["total_sum"] * weight, before.bad + row["bad_sum"] * weight
                )
    if slo.slicing is not None:
        found = {bucket: slo.slicing.slice_of(counts) for bucket, counts in found.items()}
    return found


def _pieces(store: RowReader, part: CountedIndicator, span: Span) -> list[Span]:
    starts = range(span.from_ns, span.to_ns, _DAY_NS)
    pieces = [Span(start_ns, min(start_ns + _DAY_NS, span.to_ns)) for start_ns in starts]
    if not part.indicator.is_requests or len(pieces) < 3:
        return pieces
    rows = store.rows(_HERE / "slo_arrival_days.sql")
    days = {unix_ns(datetime.combine(row["day"], time(), UTC)) // _DAY_NS for row in rows}

    def has_requests(piece: Span) -> bool:
        first = (piece.from_ns - piece.max_request_ns) // _DAY_NS
        return any(day in days for day in range(first, (piece.to_ns - 1) // _DAY_NS + 1))

    return [piece for piece in pieces if has_requests(piece)]


def _rows(store: RowReader, part: CountedIndicator, span: Span) -> list[dict[str, Any]]:
    if part.indicator.is_requests:
        return store.rows(QUERIES / "slo_counts.sql", count_parameters([part], span))
    if part.indicator.metric in SESSIONS:
        sent = session_count_parameters([part], span)
        return store.rows(QUERIES / "slo_session_counts.sql", sent)
    return store.rows(*counted_apart(part, span))


def counted_apart(part: CountedIndicator, span: Span) -> tuple[Path, dict[str, object]]:
    """Return the query that counts evaluations' answers, feedback or money, and its parameters."""
    if part.indicator.metric is Metric.COST:
        return _HERE / "slo_cost_counts.sql", cost_parameters(part, span)
    if part.indicator.metric is Metric.FEEDBACK:
        return _HERE / "slo_feedback_counts.sql", feedback_parameters(part, span)
    return _HERE / "slo_eval_counts.sql", eval_parameters(part, span)
