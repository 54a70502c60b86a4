"""The content of a notification about a spike: what rose, what would help, and example requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from evenkeel.slo.matchers import silence_command
from evenkeel.slo.model import SELECTOR_COLUMNS, Indicator, Metric, Slo
from evenkeel.slo.query import MAX_REQUEST_NS
from evenkeel.slo.rules import Rule
from evenkeel.slo.selection import page_filters
from evenkeel.slo.spikes import Spike, SpikeResult, range_text, spike_text
from evenkeel.times import rfc3339
from evenkeel_collector.slo.evidence import collect, window_link
from evenkeel_collector.slo.store import SloStore
from evenkeel_collector.slo.what_changed import what_changed

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class SpikeAlert:
    """A cohort that is above its past.

    Attributes:
        name: Of the alert.
        rule: The rule.
        test: Its test.
        select: The columns and values of the cohort, and those that the rule selects.
        found: The verdict.
        now_ns: When it was judged.
    """

    name: str
    rule: Rule
    test: Spike
    select: Mapping[str, str]
    found: SpikeResult
    now_ns: int

    @property
    def from_ns(self) -> int:
        """The start of the window judged."""
        return self.now_ns - int(self.test.over_s * self.found.width * 10**9)

    @property
    def slo(self) -> Slo:
        """An SLO that selects the same requests."""
        indicator = Indicator(Metric.AVAILABILITY, None, self.select)
        return Slo(self.name, self.rule.title, indicator, Fraction(99, 100), self.test.over_s, ())


def describe(alert: SpikeAlert, dashboard_url: str | None) -> dict[str, str]:
    """Describe a spike without querying the store: one text per fact."""
    text = spike_text(alert.test, alert.found)
    cohort = ", ".join(f"{column} {value}" for column, value in alert.select.items())
    usual = range_text(alert.test, alert.found) or "unknown"
    if alert.test.knows_days:
        usual += (
            "; compared with the highest of their level, the same time on the days before, and "
        )
        usual += "a week ago"
    annotations = {
        "summary": f"{alert.rule.title}{f' ({cohort})' if cohort else ''}",
        "description": f"{text}.",
        "usual": usual,
        "silence": silence_command(alert.name),
    }
    if alert.rule.helps:
        annotations["what_helps"] = alert.rule.helps
    if dashboard_url is not None:
        annotations["dashboard"] = window_link(
            dashboard_url, alert.slo, alert.from_ns, alert.now_ns
        )
    base = "" if dashboard_url is None else dashboard_url.rstrip("/")
    return annotations | {"explore": f"{base}/explore?{explore_query(alert)}"}


def explore_query(alert: SpikeAlert) -> str:
    """Return the parameters of the Explore page that find the requests of a spike."""
    query = {**page_filters(alert.select), **alert.test.about.explore}
    if alert.test.is_tokens and alert.found.usual is not None:
        query[f"min_{alert.test.measure}"] = f"{alert.found.usual:.0f}"
    if alert.test.measure == "repeated_share":
        query["min_repeated_share"] = f"{alert.test.above:g}"
    return urlencode({"from": rfc3339(alert.from_ns), "to": rfc3339(alert.now_ns), **query})


def gather(alert: SpikeAlert, dashboard_url: str | None, store: SloStore) -> dict[str, str]:
    """Return examples and what changed; if some cannot be read, the fact `evidence` says why."""
    return collect(_facts(alert, dashboard_url, store))


def _facts(
    alert: SpikeAlert, dashboard_url: str | None, store: SloStore
) -> Iterator[tuple[str, str | None]]:
    rows = store.read(
        _HERE / "spike_examples.sql",
        {
            **{column: alert.select.get(column, "") for column in SELECTOR_COLUMNS},
            "lacking": [column for column in alert.test.by if column not in alert.select],
            "measure": alert.test.measure,
            "above": alert.test.above,
            "from_ns": alert.from_ns,
            "to_ns": alert.now_ns,
            "max_request_ns": MAX_REQUEST_NS,
        },
    )
    yield "exemplars", "\n".join(_example(row, dashboard_url) for row in rows)
    yield from what_changed(alert.slo, alert.now_ns, store)


def _example(row: Mapping[str, Any], dashboard_url: str | None) -> str:
    tokens = ", ".join(
        f"{row[name]} {word}"
        for name, word in (("input_tokens", "tokens in"), ("output_tokens", "out"))
        if row[name] is not None
    )
    text = f"{row['request_id'] or row['trace_id']} ({tokens or row['status']})"
    if dashboard_url is None:
        return text
    query = {"trace_id": row["trace_id"], "at": row["time_ms"]}
    return f"{text} {dashboard_url.rstrip('/')}/request?{urlencode(query)}"
