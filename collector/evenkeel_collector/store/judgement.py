"""How the rollups judge a request: SQL for many objectives at once.

Objectives are elements of constant arrays, not expressions of their own: the engine reads a view's
query anew at each insert, and that takes half a millisecond an expression. What no objective uses
is left out. The third place that says what a good request is, after `slo_judged` and
evenkeel/slo/judgement.py; a test holds the three against each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evenkeel.slo.model import DURATIONS, SELECTOR_COLUMNS, Indicator, Metric, Treatment
from evenkeel.slo.query import STATUS_KINDS, status_ranges
from evenkeel_collector.store.sql import quote

COLUMN_OF_METRIC = {
    Metric.TTFT: "ttft_s",
    Metric.TPOT: "tpot_s",
    Metric.ITL: "itl_p99_s",
    Metric.STALL: "stall_s",
    Metric.E2E: "e2e_s",
}
NO_EVENTS = "CAST(map(), 'Map(String, Float64)')"


@dataclass(frozen=True, slots=True)
class Counted:
    """What is counted under one key of `slo_good` and `slo_bad`."""

    key: str
    indicator: Indicator


@dataclass(frozen=True, slots=True)
class Events:
    """Two expressions of a rollup's query: weighted good and bad events, maps by key."""

    good: str
    bad: str


def events_of(counted: Sequence[Counted]) -> Events:
    """Return the expressions; they need the aliases `weight` and `ending` of rollup.sql."""
    if not counted:
        return Events(NO_EVENTS, NO_EVENTS)
    keys = _array(quote(each.key) for each in counted)
    pairs = _judged(counted)
    # The longer expression is written once and computed once: the engine sees that they are equal.
    sums = [f"sumForEach(arrayMap(pair -> pair.{place}, {pairs}))" for place in (1, 2)]
    maps = [f"mapFilter((key, num) -> num > 0, mapFromArrays({keys}, {each}))" for each in sums]
    return Events(*maps)


def _judged(counted: Sequence[Counted]) -> str:
    """Return an array of (good, bad) weights, one element an objective."""
    arguments = {
        "errors": _array(str(_endings(each, Treatment.BAD)) for each in counted),
        "left_out": _array(str(_endings(each, Treatment.EXCLUDED)) for each in counted),
    }
    is_error, is_left_out = "bitTest(errors, ending)", "bitTest(left_out, ending)"
    if any(each.indicator.statuses for each in counted):
        arguments["statuses"] = _array(str(status_ranges(each.indicator)) for each in counted)
        kind = f"arrayFirst(each -> {_STATUS} BETWEEN each[1] AND each[2], statuses)[3]"
        bad, excluded = STATUS_KINDS[Treatment.BAD], STATUS_KINDS[Treatment.EXCLUDED]
        is_error = f"if({kind} > 0, {kind} = {bad}, {is_error})"
        is_left_out = f"if({kind} > 0, {kind} = {excluded}, {is_left_out})"
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
    judged, missed = [], []
    for metric in DURATIONS:
        if any(metric in each.indicator.judged for each in counted):
            name, column = f"max_{metric.value}", f"requests.{COLUMN_OF_METRIC[metric]}"
            arguments[name] = _array(_number(each.indicator.judged.get(metric)) for each in counted)
            is_over = f"ifNull({column} > {name}, 0)"
            if metric is Metric.TTFT:
                # Without a first token, a request that lasted longer has missed the limit.
                waited = f"(ending > 0 AND ifNull(requests.e2e_s > {name}, 0))"
                is_over = f"ifNull({column} > {name}, {waited})"
                judged.append(f"{name} < inf AND (isNotNull({column}) OR {waited})")
            else:
                judged.append(f"{name} < inf AND isNotNull({column})")
            missed.append(is_over)
    is_judged = " OR ".join([*judged, "is_always"])
    arguments["is_always"] = _array(
        str(int(each.indicator.metric is Metric.AVAILABILITY)) for each in counted
    )
    is_bad = " OR ".join([is_error, *missed])
    share = f"multiIf({is_bad}, (0., weight), {is_judged}, (weight, 0.), (0., 0.))"
    tokens = [m for m in _TOKENS if any(each.indicator.metric is m for each in counted)]
    if tokens:
        arguments["unit"] = _array(str(_UNITS.get(each.indicator.metric, 0)) for each in counted)
        for metric in tokens:
            whole, part = _TOKENS[metric]
            share = (
                f"if(unit = {_UNITS[metric]}, if(isNull({whole}) OR isNull({part}), (0., 0.),"
                f" if({is_error}, (0., weight * assumeNotNull({whole})),"
                f" (weight * assumeNotNull(least({part}, {whole})),"
                f" weight * assumeNotNull({whole} - least({part}, {whole}))))), {share})"
            )
    valid = " AND ".join(conditions)
    return (
        f"arrayMap(({', '.join(arguments)}) -> if({valid}, {share}, (0., 0.)),"
        f" {', '.join(arguments.values())})"
    )


_STATUS = "ifNull(requests.http_status, 0)"
_TOKENS = {
    Metric.ACCEPTANCE: ("requests.drafted_tokens", "requests.accepted_tokens"),
    Metric.CACHE_HIT: ("requests.input_tokens", "requests.cached_tokens"),
}
_UNITS = {Metric.ACCEPTANCE: 1, Metric.CACHE_HIT: 2}


def _filters(indicator: Indicator) -> str:
    """Return whether all filters hold; each is against constants, which the store prepares once."""
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


def _endings(counted: Counted, treatment: Treatment) -> int:
    """Return the endings treated so, as bits: 1 error, 2 aborted, 3 shed, 4 a caller's mistake."""
    indicator = counted.indicator
    treatments = (
        None, indicator.error, indicator.aborted, indicator.shed, Treatment.EXCLUDED,
    )  # fmt: skip
    return sum(1 << bit for bit, each in enumerate(treatments) if each is treatment)


def _array(elements: Iterable[str]) -> str:
    return f"[{', '.join(elements)}]"


def _number(value: float | None) -> str:
    return "inf" if value is None else repr(float(value))
