"""Judges the rules on spikes, cohort by cohort, and returns alert conditions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from evenkeel.errors import StoreError, first_line
from evenkeel.slo.groups import GROUP_LABEL, LONGEST_VALUE, is_odd
from evenkeel.slo.rules import Rule
from evenkeel.slo.spikes import WIDTHS, Spike, SpikeResult, SpikeWindow, judge_spike
from evenkeel_collector.alerts.state import Condition
from evenkeel_collector.slo.many_alerts import ActiveAlerts, alerts_of, delays_of, ended, name_of
from evenkeel_collector.slo.spike_evidence import SpikeAlert, describe, gather
from evenkeel_collector.slo.spike_past import Cohort, SpikePasts
from evenkeel_collector.slo.store import SloStore

ALERT_NAME = "Anomaly"
_SECOND_NS = 10**9
# Windows of minutes and hours are judged every half minute; the moments of cycles vary a little.
EVERY_NS = 28 * _SECOND_NS
# Cohorts that others have displaced are kept for a while: they may come back.
_KEPT_TIMES = 2


@dataclass(slots=True)
class _Family:
    """Rules that are judged from the same windows, and the past of their cohorts."""

    rules: list[tuple[Rule, Spike]]
    pasts: SpikePasts | None = None
    next_ns: int = 0
    began_ns: int = 0


class SpikeWatch:
    """Evaluates spikes twice a minute; the rules of a family share each query.

    Args:
        store: Where requests are stored.
        record_failure: Called for each family that could not be judged.
        dashboard_url: What notifications link to, or None.
    """

    def __init__(
        self,
        store: SloStore,
        record_failure: Callable[[Exception], None],
        dashboard_url: str | None = None,
    ) -> None:
        self._store = store
        self._record_failure = record_failure
        self._dashboard_url = dashboard_url
        self._families: dict[object, _Family] = {}
        self._failures: dict[str, str] = {}

    @property
    def failures(self) -> Mapping[str, str]:
        """Why rules could not be judged at the last attempt, by name."""
        return self._failures

    @property
    def num_cohorts(self) -> int:
        """How many cohorts are compared with their past."""
        return sum(len(f.pasts.cohorts) for f in self._families.values() if f.pasts is not None)

    @property
    def is_loading(self) -> bool:
        """Whether the past of cohorts is still being read."""
        return any(f.pasts is not None and f.pasts.is_loading for f in self._families.values())

    def conditions(
        self, rules: Sequence[Rule], active: ActiveAlerts, now_ns: int
    ) -> list[Condition]:
        """Return the conditions of the cohorts that are above their past, and of active alerts.

        Args:
            rules: The rules in force, of any kind.
            active: The labels of pending and firing alerts, by name.
            now_ns: The current time.
        """
        self._use(rules)
        conditions: list[Condition] = []
        for family in self._families.values():
            names = [rule.name for rule, _ in family.rules]
            try:
                found = self._judge(family, active, now_ns)
            except Exception as error:
                # Unexpected data must not stop the other rules.
                self._record_failure(StoreError(f"rules {', '.join(names)}: {error}"))
                self._failures |= dict.fromkeys(names, first_line(error, max_chars=500))
            else:
                # Between two judgements, a failure of the first is not over.
                for name in names if found is not None else ():
                    self._failures.pop(name, None)
                conditions += found or ()
        return conditions

    def _use(self, rules: Sequence[Rule]) -> None:
        families: dict[object, _Family] = {}
        for rule in rules:
            if not isinstance(rule.test, Spike):
                continue
            test = rule.test
            key = (test.over_s, test.by, tuple(sorted(rule.select.items())), test.above)
            family = families.setdefault(key, _Family([]))
            family.rules.append((rule, test))
        for place, family in families.items():
            kept = self._families.get(place)
            if kept is not None:
                kept.rules = family.rules
                families[place] = kept
        self._families = families
        names = {rule.name for family in families.values() for rule, _ in family.rules}
        self._failures = {name: why for name, why in self._failures.items() if name in names}

    def _judge(self, family: _Family, active: ActiveAlerts, now_ns: int) -> list[Condition] | None:
        """Return the conditions of a family; None if it is not time yet."""
        rule, test = family.rules[0]
        if family.pasts is None:
            family.pasts = SpikePasts(self._store, test, rule.select, now_ns)
            family.began_ns = now_ns
        pasts = family.pasts
        if pasts.is_loading:
            # A piece at a time, so that a cycle stays short.
            pasts.load()
        if now_ns < family.next_ns:
            return None
        family.next_ns = now_ns + min(EVERY_NS, int(test.over_s * _SECOND_NS) // 5)
        most = max(test.most for _, test in family.rules)
        least = min(test.min_requests for _, test in family.rules)
        windows = _by_cohort(pasts.newest(now_ns, least, most))
        alerting = {
            cohort
            for cohort in windows
            if any(name_of(rule, cohort) in active for rule, _ in family.rules)
        }
        chosen = chosen_cohorts(windows, test.by, alerting, pasts.cohorts, most)
        if len(pasts.cohorts) > _KEPT_TIMES * most:
            pasts.forget_all_but(chosen)
        pasts.follow(chosen, now_ns)
        conditions = []
        # After a start, requests of the time before it are still to come.
        is_settled = now_ns - family.began_ns >= max(WIDTHS) * test.over_s * _SECOND_NS
        for rule, test in family.rules:
            judged = set()
            for cohort in chosen[: test.most]:
                name = name_of(rule, cohort)
                found = _verdict(test, windows[cohort], pasts, cohort)
                if found is None or found.requests >= test.min_requests:
                    judged.add(name)
                if found is not None and (found.holds or (name in active and found.holds is False)):
                    conditions.append(self._condition(rule, test, cohort, found, now_ns))
            if is_settled:
                # Their cohorts have too few requests left that have the measure.
                gone = alerts_of(rule, active) - judged
                conditions += [ended(rule, name, active[name]) for name in gone]
        return conditions

    def _condition(
        self, rule: Rule, test: Spike, cohort: Cohort, found: SpikeResult, now_ns: int
    ) -> Condition:
        name = name_of(rule, cohort)
        values = {column: v for column, v in zip(test.by, cohort, strict=True) if v}
        alert = SpikeAlert(name, rule, test, {**rule.select, **values}, found, now_ns)
        return Condition(
            slo=name,
            severity=rule.severity.value,
            holds=found.holds,
            delays=delays_of(rule),
            labels={
                **alert.select,
                **rule.labels,
                GROUP_LABEL: rule.name,
                "alertname": ALERT_NAME,
                "slo": name,
                "severity": rule.severity.value,
            },
            figures={},
            describe=partial(describe, alert, self._dashboard_url),
            gather=partial(gather, alert, self._dashboard_url),
        )


def _by_cohort(rows: Sequence[Mapping[str, Any]]) -> dict[Cohort, dict[int, Mapping[str, Any]]]:
    """Return the rows by cohort, busiest first, and by width."""
    found: dict[Cohort, dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        cohort = tuple(row["cohort"])
        if not is_odd(cohort) and all(len(value) <= LONGEST_VALUE for value in cohort):
            found.setdefault(cohort, {})[row["place"]] = row
    return found


def chosen_cohorts(
    busiest: Iterable[Cohort],
    by: Sequence[str],
    alerting: Collection[Cohort],
    known: Collection[Cohort],
    most: int,
) -> list[Cohort]:
    """Return the cohorts to judge: those with an alert, then of each tenant as many as fit.

    A tenant's own are in the order in which they are left out last: known past, then busiest.
    """
    place = by.index("tenant") if "tenant" in by else None
    rank: dict[Cohort, int] = {}
    num_of: Counter[str] = Counter()
    for cohort in sorted(busiest, key=lambda each: each not in known):
        tenant = "" if place is None else cohort[place]
        rank[cohort] = num_of[tenant]
        num_of[tenant] += 1
    return sorted(rank, key=lambda each: (each not in alerting, rank[each]))[:most]


def _verdict(
    test: Spike, rows: Mapping[int, Mapping[str, Any]], pasts: SpikePasts, cohort: Cohort
) -> SpikeResult | None:
    """Return a cohort's verdict; None as long as its past is not read."""
    past = pasts.find(cohort, test)
    if past is None:
        return None
    return judge_spike(test, [_window(test, w, rows[w]) for w in WIDTHS if w in rows], past)


def _window(test: Spike, width: int, row: Mapping[str, Any]) -> SpikeWindow:
    num = float(row[f"{test.measure}_num"])
    if not num > 0:
        return SpikeWindow(width, 0.0)
    if test.is_tokens:
        return SpikeWindow(width, num, row[f"{test.measure}_levels"])
    return SpikeWindow(width, num, share=float(row[test.measure]))
