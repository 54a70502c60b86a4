"""The objectives that the rollups count, recorded in the table `slo_objectives`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from evenkeel.slo.model import Indicator, Metric, Slo, Treatment
from evenkeel.slo.selection import Filter, SelectOperator, StatusRange
from evenkeel_collector.store.judged_sql import KeyedIndicator

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client


@dataclass(frozen=True, slots=True)
class CountedSlo:
    """An SLO, or a member of a composite one, as `slo_objectives` has it.

    Attributes:
        slo: Its name.
        key: The key of its events in `slo_good` and `slo_bad`.
        weight: Weight of an event.
        definition: The indicator as JSON: which requests are events, and which are good.
    """

    slo: str
    key: str
    weight: float
    definition: str


def read_objectives(client: Client) -> tuple[int, list[CountedSlo]]:
    """Return the number of the newest set, and its objectives."""
    rows = client.query(
        "SELECT number, slo, key, weight, definition FROM slo_objectives"
        " WHERE number = (SELECT max(number) FROM slo_objectives)"
    ).result_rows
    if not rows:
        return 0, []
    return int(rows[0][0]), [CountedSlo(*row[1:]) for row in rows if row[1]]


def write_objectives(client: Client, number: int, counted: Sequence[CountedSlo]) -> None:
    """Activate a set as a whole."""
    since = datetime.now(UTC)
    client.insert(
        "slo_objectives",
        [[number, since, each.slo, each.key, each.weight, each.definition] for each in counted],
        column_names=["number", "since", "slo", "key", "weight", "definition"],
    )


def counted_slos(slos: Iterable[Slo], in_force: Sequence[CountedSlo]) -> list[CountedSlo]:
    """Return the objectives to count; equal definitions share a key, active ones keep theirs.

    All other keys are new, so the counts of an interrupted attempt are never added to.
    """
    keys = {each.definition: each.key for each in in_force}
    attempt = uuid.uuid4().hex[:8]
    found = []
    for slo in slos:
        for member in slo.indicator.parts:
            if not member.indicator.is_requests:
                continue
            definition = write_definition(member.indicator)
            key = keys.setdefault(definition, f"{slo.name}@{attempt}")
            found.append(CountedSlo(slo.name, key, float(member.weight), definition))
    return found


def parts_of(counted: Sequence[CountedSlo]) -> list[KeyedIndicator]:
    """Return the counted indicators, each key once."""
    by_key = {each.key: each.definition for each in counted}
    return [KeyedIndicator(key, read_definition(text)) for key, text in by_key.items()]


def write_definition(indicator: Indicator) -> str:
    """Return an indicator as JSON; equal for equal indicators."""
    more: dict[str, Any] = {}
    if indicator.filters:
        more["filters"] = [[f.column, f.test.value, *f.values] for f in indicator.filters]
    if indicator.statuses:
        more["statuses"] = [[s.first, s.last, s.treatment] for s in indicator.statuses]
    return json.dumps(
        {
            "metric": indicator.metric.value,
            "limits": {metric.value: limit for metric, limit in indicator.judged.items()},
            "select": dict(indicator.select),
            "error": indicator.error.value,
            "aborted": indicator.aborted.value,
            "shed": indicator.shed.value,
            # Omitted if empty, so that definitions from older versions stay equal.
            **more,
        },
        sort_keys=True,
    )


def read_definition(text: str) -> Indicator:
    """Return the indicator that `write_definition` wrote; all limits as those of a joint one."""
    value: dict[str, Any] = json.loads(text)
    return Indicator(
        Metric(value["metric"]),
        None,
        select=value["select"],
        error=Treatment(value["error"]),
        aborted=Treatment(value["aborted"]),
        shed=Treatment(value["shed"]),
        limits={Metric(metric): limit for metric, limit in value["limits"].items()},
        filters=tuple(
            Filter(column, SelectOperator(test), tuple(values))
            for column, test, *values in value.get("filters", ())
        ),
        statuses=tuple(StatusRange(*each) for each in value.get("statuses", ())),
    )
