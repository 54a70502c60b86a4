"""Exports SLOs as Prometheus recording and alerting rules.

The rules count events with `increase`: exact if samples fall on the windows' edges, otherwise
extrapolated by Prometheus. evenkeel's own evaluation needs neither.

They also record Sloth's series under its names (sloth.dev), so that dashboards made for Sloth
show these SLOs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import yaml

from evenkeel.durations import prometheus_duration
from evenkeel.slo.burn_rates import DAY_S, MINUTE_S, AlertWindow, Severity, confidence_z
from evenkeel.slo.groups import GROUP_LABEL
from evenkeel.slo.model import Slo
from evenkeel.slo.rules import Rule
from evenkeel_collector.slo.formats.prometheus_rule import (
    equal_to,
    literal,
    prometheus_labels,
    rule_group,
    silence_parts,
)

EVENTS_METRIC = "evenkeel_slo_events_total"
BAD_METRIC = "evenkeel_slo_bad_events_total"
ALERT_NAME = "SloBudgetBurn"
NO_DATA_NAME = "SloNoData"


@dataclass(frozen=True, slots=True)
class EventCounters:
    """The two counters that rules are built on.

    A bare name gets the matcher `slo="NAME"`, or for a grouped SLO one that matches all its groups,
    which are counted separately; a name with braces is used unchanged.
    """

    events: str = EVENTS_METRIC
    bad: str = BAD_METRIC

    def increase(self, counter: str, slo: Slo, window_s: Fraction) -> str:
        """Return the PromQL for one SLO's events within a window."""
        selector = counter if counter.endswith("}") else f"{counter}{{{_matcher(slo)}}}"
        by = "" if slo.indicator.grouping is None else " by (slo) "
        return f"sum{by}(increase({selector}[{prometheus_duration(window_s)}]))"


def _matcher(slo: Slo) -> str:
    if slo.indicator.grouping is None:
        return f'slo="{slo.name}"'
    # Names consist of letters, digits, dashes, dots and underscores.
    return f'slo=~"{slo.name.replace(".", "[.]")}/.+"'


def prometheus_rules(
    slos: Sequence[Slo], counters: EventCounters | None = None, rules: Sequence[Rule] = ()
) -> str:
    """Return a rule file.

    There are two groups per SLO (error ratios and alerts; Sloth's series) and one for the rules.
    Rules that Prometheus cannot evaluate, or only for vLLM, are named in comments.

    Args:
        slos: The SLOs.
        counters: The counters of their events; None uses the collector's.
        rules: The alerts in addition to the SLOs'.

    Raises:
        ConfigurationError: If a window cannot be written as a Prometheus duration.
    """
    counters = counters or EventCounters()
    groups: list[dict[str, Any]] = []
    for slo in slos:
        groups.append(_group(slo, counters))
        # Sloth's dashboards know SLOs defined in a file, not groups that come and go.
        groups += [_sloth(slo, counters)] if slo.indicator.grouping is None else []
    others, lacking = rule_group(rules)
    groups += [others] if others["rules"] else []
    comments = "".join(f"# {line}\n" for line in lacking)
    return comments + str(yaml.safe_dump({"groups": groups}, sort_keys=False, width=1000))


def _group(slo: Slo, counters: EventCounters) -> dict[str, Any]:
    windows = slo.windows
    lengths = sorted({s for window in windows for s in (window.long_s, window.short_s)})
    rules: list[dict[str, Any]] = [
        {
            "record": _recorded(length_s),
            "expr": f"{counters.increase(counters.bad, slo, length_s)}"
            f" / {counters.increase(counters.events, slo, length_s)}",
            "labels": _own_label(slo),
        }
        for length_s in lengths
    ]
    for severity in slo.severities:
        of_severity = [w for w in windows if w.severity is severity]
        rules.append(
            {
                "alert": ALERT_NAME,
                "expr": _with_values(
                    slo, " or ".join(_condition(slo, w, counters) for w in of_severity)
                ),
                **_patience(slo),
                "labels": {
                    **prometheus_labels(slo.labels),
                    **_own_label(slo),
                    "severity": severity.value,
                },
                "annotations": {
                    "summary": f"{literal(slo.title)}: the error budget burns too fast",
                    "description": "Budget share, long and short window: "
                    + "; ".join(
                        f"{float(w.budget_ratio):g} {prometheus_duration(w.long_s)} "
                        f"{prometheus_duration(w.short_s)}"
                        for w in of_severity
                    ),
                },
            }
        )
    if slo.scaled_no_data_s:
        rules.append(_no_data(slo, counters))
    return {"name": f"evenkeel-slo-{slo.name}", "rules": rules}


def _own_label(slo: Slo) -> dict[str, str]:
    """Return the label that identifies the SLO; groups already have it on their counters."""
    if slo.indicator.grouping is None:
        return {"slo": slo.name}
    return {GROUP_LABEL: slo.name}


def _with_values(slo: Slo, expr: str) -> str:
    """Return an alert's expression, with group values extracted from their names as labels."""
    if slo.indicator.grouping is None:
        return expr
    columns = slo.indicator.grouping.columns
    name = slo.name.replace(".", "[.]")
    for place, column in enumerate(columns):
        values = ["([^,]*)" if each == place else "[^,]*" for each in range(len(columns))]
        expr = f'label_replace({expr}, "{column}", "$1", "slo", "{name}/{",".join(values)}")'
    return expr


def _no_data(slo: Slo, counters: EventCounters) -> dict[str, Any]:
    window_s, held_s = silence_parts(slo.scaled_no_data_s)
    events = counters.increase(counters.events, slo, window_s)
    # Also fires if the counter itself is gone; for groups, only existing ones can be seen.
    or_gone = f"({events} or vector(0))" if slo.indicator.grouping is None else events
    return {
        "alert": NO_DATA_NAME,
        "expr": _with_values(slo, f"{or_gone} == 0"),
        "for": prometheus_duration(held_s),
        "labels": {
            **prometheus_labels(slo.labels),
            **_own_label(slo),
            "severity": Severity.TICKET.value,
        },
        "annotations": {"summary": f"{literal(slo.title)}: no data"},
    }


def _sloth(slo: Slo, counters: EventCounters) -> dict[str, Any]:
    """Return recording rules under Sloth's names, based on the recorded error ratios.

    Sloth's period rolls, and PromQL has no window that begins with the month: a calendar period is
    recorded as a rolling one of its nominal length.
    """
    service = slo.labels.get("service", "evenkeel")
    own = {
        "sloth_id": f"{service}-{slo.name}", "sloth_service": service, "sloth_slo": slo.name,
    }  # fmt: skip
    which = equal_to(own)
    period_s = slo.scaled_period_s
    windows = {s for window in slo.windows for s in (window.long_s, window.short_s)}
    rules: list[dict[str, Any]] = []

    def record(name: str, expr: str, **more: str) -> None:
        rules.append({"record": name, "expr": expr, "labels": {**own, **more}})

    for length_s in sorted({*windows, 5 * MINUTE_S, period_s}):
        window = prometheus_duration(length_s)
        ratio = (
            f'max({_recorded(length_s)}{{slo="{slo.name}"}})'
            if length_s in windows
            else f"{counters.increase(counters.bad, slo, length_s)}"
            f" / {counters.increase(counters.events, slo, length_s)}"
        )
        record(f"slo:sli_error:ratio_rate{window}", ratio, sloth_window=window)
    record("slo:objective:ratio", f"vector({float(slo.target)!r})")
    record("slo:error_budget:ratio", f"vector({float(1 - slo.target)!r})")
    record("slo:time_period:days", f"vector({float(period_s / DAY_S)!r})")
    for name, length_s in (("current", 5 * MINUTE_S), ("period", period_s)):
        record(
            f"slo:{name}_burn_rate:ratio",
            f"slo:sli_error:ratio_rate{prometheus_duration(length_s)}{{{which}}}"
            " / on(sloth_id, sloth_slo, sloth_service) group_left"
            f" slo:error_budget:ratio{{{which}}}",
        )
    record("slo:period_error_budget_remaining:ratio", f"1 - slo:period_burn_rate:ratio{{{which}}}")
    objective = f"{float(slo.target * 100):.10g}"
    record("sloth_slo_info", "vector(1)", sloth_objective=objective, sloth_mode="evenkeel")
    # No SLO's name has a slash.
    return {"name": f"evenkeel-slo-{slo.name}/sloth", "rules": rules}


def _recorded(length_s: Fraction) -> str:
    return f"slo:error_ratio:increase{prometheus_duration(length_s)}"


def _patience(slo: Slo) -> dict[str, str]:
    durations = {"for": slo.pending_s, "keep_firing_for": slo.keep_firing_s}
    return {
        key: prometheus_duration(seconds * slo.scale)
        for key, seconds in durations.items()
        if seconds
    }


def _condition(slo: Slo, window: AlertWindow, counters: EventCounters) -> str:
    """Return the condition for a pair to burn; the limit is one literal: 14.4 * 0.001 ≠ 0.0144."""
    limit = repr(float(window.error_limit(slo.target)))
    long, short = (f"{_recorded(s)}{{{_own(slo)}}}" for s in (window.long_s, window.short_s))
    # sum() has no labels and the recorded ratio has one: match on no labels.
    on = "on()" if slo.indicator.grouping is None else "on(slo)"
    parts = [f"{long} > {limit}", f"{short} > {limit}"]
    if slo.min_bad > 1:
        bad = counters.increase(counters.bad, slo, window.long_s)
        parts.append(f"{on} {bad} >= {slo.min_bad}")
    if slo.confidence is not None and window.severity is Severity.PAGE:
        n = counters.increase(counters.events, slo, window.long_s)
        ratio = f"sum({long})" if slo.indicator.grouping is None else f"sum by (slo) ({long})"
        parts.append(f"{on} {_wilson(slo.confidence, ratio, n)} > {limit}")
    return "(" + " and ".join(parts) + ")"


def _own(slo: Slo) -> str:
    """Return the matcher for recorded ratios."""
    return equal_to(_own_label(slo))


def _wilson(confidence: Fraction, ratio: str, n: str) -> str:
    z = confidence_z(confidence)
    p, half = ratio, repr(z * z / 2)
    root = f"sqrt({p} * (1 - {p}) / {n} + {z * z / 4!r} / {n} ^ 2)"
    return f"(({p} + {half} / {n} - {z!r} * {root}) / (1 + {z * z!r} / {n}))"
