"""The circumstances of a breach: the worst-hit cohorts, when it began, and what changed before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evenkeel.control_levers import lever_change
from evenkeel.errors import StoreError
from evenkeel.slo.change_points import ChangePoint, find_changes
from evenkeel.slo.model import Slo
from evenkeel.slo.query import Span, selection_parameters
from evenkeel.times import MINUTE_NS, rfc3339
from evenkeel_collector.slo.store import SloStore

_HERE = Path(__file__).parent
_DAY_NS = 86400 * 10**9
_MIN_EFFECT_RATIO = 0.1
_MOST_MINUTES = 720
_NUM_COHORTS = 3
_VERSION = "prompt_version"
_MOST_GATES = 8
# The baseline of a window is the time before it: this many times as long, at least an hour.
_BASELINE_WINDOWS = 6


def read_background(
    slo: Slo, from_ns: int, to_ns: int, store: SloStore
) -> Iterator[tuple[str, str | None]]:
    """Yield facts about the circumstances of the window that fired, one by one.

    Raises:
        StoreError: If the store is unavailable or rejects a query; earlier facts remain valid.
    """
    before_ns = max(_BASELINE_WINDOWS * (to_ns - from_ns), 3600 * 10**9)
    recent = store.evidence(_HERE / "slo_cohorts.sql", slo, from_ns, to_ns)
    baseline = store.evidence(_HERE / "slo_cohorts.sql", slo, from_ns - before_ns, from_ns)
    yield "worst_cohorts", worst_cohorts(recent, baseline)
    start_ns = max(from_ns - before_ns, to_ns - _MOST_MINUTES * MINUTE_NS)
    minutes = store.evidence(_HERE / "slo_minutes.sql", slo, start_ns, to_ns)
    yield "change_point", nearest_change(minutes, from_ns)
    yield "eval_verdict", _eval_verdict(slo, to_ns, store)
    yield from what_changed(slo, to_ns, store)


def what_changed(slo: Slo, to_ns: int, store: SloStore) -> Iterator[tuple[str, str | None]]:
    """Yield the last prompt change, deploy and control action; None for each that did not happen.

    Raises:
        StoreError: If the store is unavailable or rejects a query; earlier facts remain valid.
    """
    yield "prompt_change", _prompt_change(slo, to_ns, store)
    try:
        # Both scan a day of spans and may time out; the other facts must not depend on them.
        yield "last_deploy", _last_deploy(slo, to_ns, store)
        yield "control_action", _control_action(slo, to_ns, store)
    except StoreError as error:
        yield "evidence", f"incomplete: {error}"


def worst_cohorts(
    recent: Sequence[Mapping[str, Any]], baseline: Sequence[Mapping[str, Any]]
) -> str | None:
    """Return the cohorts with the most bad events beyond what their own past predicts.

    The prediction is events × the cohort's bad ratio in the baseline, or 0 without a past. A cohort
    that makes up all of the traffic is uninformative and left out, as are events without a value
    (cohort ""), which count as others.
    """
    past = {(r["dimension"], r["cohort"]): r["bad_sum"] / r["total_sum"] for r in baseline}
    values: dict[str, int] = {}
    for row in recent:
        values[row["dimension"]] = values.get(row["dimension"], 0) + 1

    def excess(row: Mapping[str, Any]) -> float:
        share = past.get((row["dimension"], row["cohort"]), 0.0)
        return float(row["bad_sum"] - row["total_sum"] * share)

    telling = [
        row for row in recent if row["cohort"] and values[row["dimension"]] > 1 and excess(row) > 0
    ]
    telling.sort(key=lambda row: (-excess(row), row["dimension"], row["cohort"]))
    sentences = []
    for row in telling[:_NUM_COHORTS]:
        share = past.get((row["dimension"], row["cohort"]))
        before = "no data before" if share is None else f"{share:.1%} before"
        sentences.append(
            f"{row['dimension']}={row['cohort']}: {row['bad_sum'] / row['total_sum']:.1%} bad of "
            f"{row['total_sum']:,.0f}, {before}"
        )
    return "; ".join(sentences) or None


def nearest_change(minutes: Sequence[Mapping[str, Any]], fired_from_ns: int) -> str | None:
    """Return the change point nearest to the start of the window that fired."""
    is_measured = bool(minutes) and all(row["value"] is not None for row in minutes)
    key = "value" if is_measured else "bad_ratio"
    changes = find_changes([row[key] for row in minutes], _MIN_EFFECT_RATIO)
    if not changes:
        return None

    def distance(change: ChangePoint) -> int:
        return abs(int(minutes[change.index]["minute"]) * MINUTE_NS - fired_from_ns)

    nearest = min(changes, key=distance)
    at = rfc3339(int(minutes[nearest.index]["minute"]) * MINUTE_NS, "minutes")
    if is_measured:
        return f"{at}: from {nearest.before:.3g} s to {nearest.after:.3g} s on average"
    return f"{at}: from {nearest.before:.2%} to {nearest.after:.2%} bad"


def _prompt_change(slo: Slo, to_ns: int, store: SloStore) -> str | None:
    row = _newest(_HERE / "prompt_changes.sql", slo, Span(to_ns - 7 * _DAY_NS, to_ns), store)
    if row is None:
        return None
    return (
        f"{row['prompt_name']} went from {row['before']} to {row['prompt_version']} at "
        f"{rfc3339(row['first_ns'])}"
    )


def _last_deploy(slo: Slo, to_ns: int, store: SloStore) -> str | None:
    row = _newest(_HERE / "deploys.sql", slo, Span(to_ns - _DAY_NS, to_ns), store)
    if row is None:
        return None
    where = f" on {row['host']}" if row["host"] else ""
    version = f", version {row['version']}" if row["version"] else ""
    is_new = row["version"] and row["before"] and row["version"] != row["before"]
    before = f" (before: {row['before']})" if is_new else ""
    return f"{row['service']}: a new instance{where}{version}{before} at {rfc3339(row['first_ns'])}"


def _newest(query: Path, slo: Slo, span: Span, store: SloStore) -> Mapping[str, Any] | None:
    """Return the newest change among the requests that an SLO, or a member of it, selects."""
    bounds = {"from_ns": span.from_ns, "to_ns": span.to_ns}
    rows: list[Mapping[str, Any]] = []
    for selection in changed_selections(slo):
        rows += store.read(query, {**bounds, **selection})
    return max(rows, key=lambda row: int(row["first_ns"]), default=None)


def changed_selections(slo: Slo) -> list[dict[str, object]]:
    """Return the selections, as query parameters, in which a change concerns an SLO.

    The version itself is left out: an SLO of one version is about its prompt's others, too.
    """
    found: list[dict[str, object]] = []
    for member in slo.indicator.parts:
        select = {k: v for k, v in member.indicator.select.items() if k != _VERSION}
        filters = tuple(each for each in member.indicator.filters if each.column != _VERSION)
        selection = selection_parameters(replace(member.indicator, select=select, filters=filters))
        if selection not in found:
            found.append(selection)
    return found


def _control_action(slo: Slo, to_ns: int, store: SloStore) -> str | None:
    span = {"from_ns": to_ns - _DAY_NS, "to_ns": to_ns, "tenant": _tenant(slo)}
    for row in store.read(_HERE / "control_actions.sql", span):
        return f"{action_words(row)} at {rfc3339(row['time_ns'])}"
    return None


def action_words(row: Mapping[str, Any]) -> str:
    """Describe one automatic change of the runtime; a dry run is named as such."""
    what = row["attribute"].removeprefix("evenkeel.").removesuffix(".change")
    changed = lever_change(row["attributes"])
    if changed is None or not changed.lever:
        return f"{what}: {row['change']}"
    unchanged = " (dry run: nothing changed)" if changed.is_dry_run else ""
    return f"{what}: {changed.lever} from {changed.before} to {changed.after}{unchanged}"


def _tenant(slo: Slo) -> str:
    """Return the tenant that sees the SLO's alerts; '' if none does."""
    return slo.indicator.select.get("tenant", "")


def _eval_verdict(slo: Slo, to_ns: int, store: SloStore) -> str | None:
    span = {"from_ns": to_ns - 30 * _DAY_NS, "to_ns": to_ns, "tenant": _tenant(slo)}
    gates = store.read(_HERE / "newest_eval_gates.sql", span)
    if not gates:
        return None
    overall = [gate for gate in gates if gate["slice"] in (None, "all", "overall")]
    slices = [gate for gate in gates if gate not in overall]
    regressed = [gate for gate in slices if gate["verdict"] == "regressed"][:_NUM_COHORTS]
    told = [f"{gate['gate']} {gate['verdict']}" for gate in overall[:_MOST_GATES]]
    told += [f"{gate['gate']} {gate['slice']} regressed" for gate in regressed]
    others = Counter(gate["verdict"] for gate in slices if gate not in regressed)
    told += [f"other slices: {number} {verdict}" for verdict, number in others.items()]
    first = gates[0]
    return f"run {first['run_id']} at {rfc3339(first['time_ns'])}: {', '.join(told)}"
