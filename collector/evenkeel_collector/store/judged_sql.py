"""SQL that judges requests by many objectives at once: in the rollups, and in `slo_judged`.

The rule is that of evenkeel/slo/good_events.py. In the rollups, objectives are elements of constant
arrays, not separate expressions: the engine parses a view's query again at each insert, which takes
half a millisecond per expression. Unused columns and metrics are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from evenkeel.slo.good_events import (
    DURATION_COLUMNS,
    TOKEN_COLUMNS,
    Sql,
    fill,
    has_waited,
    is_treated,
    judge_durations,
    treatments_of_endings,
)
from evenkeel.slo.model import DURATIONS, SELECTOR_COLUMNS, Indicator, Metric, Treatment
from evenkeel.slo.query import status_ranges
from evenkeel_collector.store.sql import quote

NO_EVENTS = "CAST(map(), 'Map(String, Float64)')"


@dataclass(frozen=True, slots=True)
class KeyedIndicator:
    """An indicator counted under one key of `slo_good` and `slo_bad`."""

    key: str
    indicator: Indicator


@dataclass(frozen=True, slots=True)
class Events:
    """Two expressions of a rollup's query: weighted good and bad events, maps by key."""

    good: str
    bad: str


def events_of(counted: Sequence[KeyedIndicator]) -> Events:
    """Return the expressions; they need the aliases `weight` and `ending` of rollup.sql."""
    if not counted:
        return Events(NO_EVENTS, NO_EVENTS)
    keys = _array(quote(each.key) for each in counted)
    pairs = _judged(counted)
    # The longer expression is written once and computed once: the engine sees that they are equal.
    sums = [f"sumForEach(arrayMap(pair -> pair.{place}, {pairs}))" for place in (1, 2)]
    maps = [f"mapFilter((key, num) -> num > 0, mapFromArrays({keys}, {each}))" for each in sums]
    return Events(*maps)


def _judged(counted: Sequence[KeyedIndicator]) -> str:
    """Return an array of (good, bad) weights, one element per objective."""
    arguments = {
        "errors": _array(str(_endings(each, Treatment.BAD)) for each in counted),
        "left_out": _array(str(_endings(each, Treatment.EXCLUDED)) for each in counted),
    }
    is_error, is_left_out = Sql("bitTest(errors, ending)"), Sql("bitTest(left_out, ending)")
    if any(each.indicator.statuses for each in counted):
        arguments["statuses"] = _array(str(status_ranges(each.indicator)) for each in counted)
        treatment = Sql(f"arrayFirst(each -> {_STATUS} BETWEEN each[1] AND each[2], statuses)[3]")
        is_error = is_treated(Treatment.BAD, is_error, treatment)
        is_left_out = is_treated(Treatment.EXCLUDED, is_left_out, treatment)
    conditions = [f"NOT {is_left_out}"]
    if any(each.indicator.filters for each in counted):
        arguments["is_selected"] = _array(_filters(each.indicator) for each in counted)
        conditions.append("is_selected")
    for column in SELECTOR_COLUMNS:
        if any(column in each.indicator.select for each in counted):
            wanted = [quote(each.indicator.select.get(column, "")) for each in counted]
            arguments[f"want_{column}"] = _array(wanted)
            conditions.append(
                f"(want_{column} = '' OR want_{column} = ifNull(toString(requests.{column}), ''))"
            )
    arguments["is_always"] = _array(
        str(int(each.indicator.metric is Metric.AVAILABILITY)) for each in counted
    )
    is_bad, is_judged = is_error, Sql("is_always")
    limits = {}
    for metric in DURATIONS:
        if any(metric in each.indicator.judged for each in counted):
            limits[metric] = Sql(f"max_{metric}")
            arguments[f"max_{metric}"] = _array(
                _number(each.indicator.judged.get(metric)) for each in counted
            )
    if limits:
        durations = {m: Sql(f"requests.{column}") for m, column in DURATION_COLUMNS.items()}
        missed, judged = judge_durations(durations, limits, Sql("ending > 0"))
        is_bad, is_judged = is_bad | missed, is_judged | judged
    share = f"multiIf({is_bad}, (0., weight), {is_judged}, (weight, 0.), (0., 0.))"
    units = [m for m in TOKEN_COLUMNS if any(each.indicator.metric is m for each in counted)]
    if units:
        arguments["unit"] = _array(quote(each.indicator.metric) for each in counted)
    for metric in units:
        num, num_good = (f"requests.{column}" for column in TOKEN_COLUMNS[metric])
        share = (
            f"if(unit = '{metric}', if(isNull({num}) OR isNull({num_good}), (0., 0.),"
            f" if({is_error}, (0., weight * assumeNotNull({num})),"
            f" (weight * assumeNotNull(least({num_good}, {num})),"
            f" weight * assumeNotNull({num} - least({num_good}, {num}))))), {share})"
        )
    valid = " AND ".join(conditions)
    return (
        f"arrayMap(({', '.join(arguments)}) -> if({valid}, {share}, (0., 0.)),"
        f" {', '.join(arguments.values())})"
    )


_STATUS = "ifNull(requests.http_status, 0)"


def judged_view() -> str:
    """Return the statement that creates `slo_judged`, whose parameters are the objectives."""
    durations = {metric: Sql(column) for metric, column in DURATION_COLUMNS.items()}
    limits = {metric: Sql(f"{metric}_limit") for metric in DURATIONS}
    is_unfinished, treatment = Sql("ending > 0"), Sql("status_treatment")
    is_missed, is_judged = judge_durations(durations, limits, is_unfinished)
    tokens = [(metric, *columns) for metric, columns in TOKEN_COLUMNS.items()]
    return fill(
        (files("evenkeel_collector.store") / "slo_judged.sql").read_text(encoding="utf-8"),
        is_bad=is_treated(Treatment.BAD, Sql("treatment = 'bad'"), treatment),
        is_excluded=is_treated(Treatment.EXCLUDED, Sql("treatment = 'excluded'"), treatment),
        is_missed=is_missed,
        is_judged=is_judged,
        has_waited=has_waited(durations, limits[Metric.TTFT], is_unfinished),
        token_events=", ".join(f"unit = '{metric}', {num}" for metric, num, _ in tokens),
        good_tokens=", ".join(f"unit = '{metric}', {good}" for metric, _, good in tokens),
    )


def judged_sessions_view() -> str:
    """Return the statement that creates `slo_judged_sessions`."""
    text = files("evenkeel_collector.store") / "slo_judged_sessions.sql"
    return fill(text.read_text(encoding="utf-8"))


def _filters(indicator: Indicator) -> str:
    """Return whether all filters match; they use constants, which the store prepares once."""
    conditions = []
    for each in indicator.filters:
        value = f"ifNull(toString(requests.{each.column}), '')"
        found = (
            f"{value} IN ({', '.join(map(quote, each.values))})"
            if each.is_list
            else f"match({value}, {quote(each.pattern)})"
        )
        conditions.append(f"NOT ({found})" if each.is_excluding else f"({found})")
    return " AND ".join(conditions) or "1"


def _endings(counted: KeyedIndicator, treatment: Treatment) -> int:
    """Return the endings with this treatment, as bits."""
    treatments = treatments_of_endings(counted.indicator)
    return sum(1 << bit for bit, each in enumerate(treatments) if each is treatment)


def _array(elements: Iterable[str]) -> str:
    return f"[{', '.join(elements)}]"


def _number(value: float | None) -> str:
    return "inf" if value is None else repr(float(value))
