"""Finds SLOs whose period is longer than the store keeps what they count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from evenkeel.durations import format_duration
from evenkeel.slo.model import SESSIONS, Indicator, Metric, Slo
from evenkeel_collector.store.retention import Retention

_TABLES = {Metric.EVAL_PASS: "eval_results", Metric.FEEDBACK: "feedback"}


def short_histories(slos: Sequence[Slo], retention: Mapping[str, Retention]) -> Iterator[str]:
    """Yield a note on each SLO that a restart makes forget a part of its period.

    While the collector runs, it has the counts of a whole period in memory; at a start it can only
    count what is stored.
    """
    for slo in slos:
        shortest: dict[str, int] = {}
        for part in slo.indicator.parts:
            # Groups, and since when they exist, are read from the rollup.
            rollup = ["requests_1h"] if slo.indicator.grouping is not None else []
            for table in [_table_of(part.indicator), *rollup]:
                kept_s = _kept_s(part.indicator, retention.get(table))
                if kept_s is not None:
                    shortest[table] = min(kept_s, shortest.get(table, kept_s))
        for table, kept_s in shortest.items():
            if kept_s < slo.longest_period_s:
                yield (
                    f"slo {slo.name!r} covers up to {format_duration(slo.longest_period_s)}, but "
                    f"collector.retention keeps {table} for {format_duration(kept_s)}: "
                    "each restart makes its SLI and budget forget the rest"
                )


def _table_of(indicator: Indicator) -> str:
    if indicator.metric in SESSIONS:
        return "session_parts"
    return _TABLES.get(indicator.metric, "requests")


def _kept_s(indicator: Indicator, rule: Retention | None) -> int | None:
    """Return how long all rows that it selects are kept at least; None: forever."""
    if rule is None:
        return None
    tenant = indicator.select.get("tenant")
    if tenant is not None:
        return rule.keep_s_of_tenant.get(tenant, rule.keep_s)
    kept = [*rule.keep_s_of_tenant.values(), *([] if rule.keep_s is None else [rule.keep_s])]
    return min(kept, default=None)
