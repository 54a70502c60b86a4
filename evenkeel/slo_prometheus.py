"""Exports SLOs as Prometheus recording and alerting rules, for who alerts from Prometheus.

The rules count events with `increase`: exact where samples lie on the windows' edges, and
extrapolated by Prometheus elsewhere. evenkeel's own evaluation needs neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import yaml

from evenkeel.errors import ConfigurationError
from evenkeel.slo import AlertWindow, Severity, confidence_z
from evenkeel.slo_model import Slo

EVENTS_METRIC = "evenkeel_slo_events_total"
BAD_METRIC = "evenkeel_slo_bad_events_total"
ALERT_NAME = "SloBudgetBurn"
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))


@dataclass(frozen=True, slots=True)
class Counters:
    """The two counters that rules are built on.

    A name alone gets the matcher `slo="NAME"`; one with braces is taken as it is.
    """

    events: str = EVENTS_METRIC
    bad: str = BAD_METRIC

    def increase(self, counter: str, slo: str, window_s: Fraction) -> str:
        """Return the PromQL for the events of one SLO within a window."""
        selector = counter if counter.endswith("}") else f'{counter}{{slo="{slo}"}}'
        return f"sum(increase({selector}[{prometheus_duration(window_s)}]))"


def prometheus_duration(seconds: Fraction) -> str:
    """Return a duration in Prometheus' words, in one unit: 5m, 36h, 90s, 250ms.

    Raises:
        ConfigurationError: If it is no whole number of milliseconds.
    """
    milliseconds = seconds * 1000
    for unit, length in _UNITS:
        if milliseconds and milliseconds % length == 0:
            return f"{milliseconds // length}{unit}"
    raise ConfigurationError(f"a window of {float(seconds):g} s has no whole milliseconds")


def prometheus_rules(slos: Sequence[Slo], counters: Counters | None = None) -> str:
    """Return a rule file: one group a SLO, the windows' error ratios recorded, then the alerts.

    Raises:
        ConfigurationError: If a window cannot be written in Prometheus' durations.
    """
    counters = counters or Counters()
    groups = [_group(slo, counters) for slo in slos]
    return str(yaml.safe_dump({"groups": groups}, sort_keys=False, width=1000))


def _group(slo: Slo, counters: Counters) -> dict[str, Any]:
    windows = slo.windows
    lengths = sorted({s for window in windows for s in (window.long_s, window.short_s)})
    rules: list[dict[str, Any]] = [
        {
            "record": _recorded(length_s),
            "expr": f"{counters.increase(counters.bad, slo.name, length_s)}"
            f" / {counters.increase(counters.events, slo.name, length_s)}",
            "labels": {"slo": slo.name},
        }
        for length_s in lengths
    ]
    for severity in slo.severities:
        of_severity = [w for w in windows if w.severity is severity]
        rules.append(
            {
                "alert": ALERT_NAME,
                "expr": " or ".join(_condition(slo, w, counters) for w in of_severity),
                **_patience(slo),
                "labels": {**slo.labels, "slo": slo.name, "severity": severity.value},
                "annotations": {
                    "summary": f"{slo.title}: the error budget burns too fast",
                    "description": "Budget share, long and short window: "
                    + "; ".join(
                        f"{float(w.budget_ratio):g} {prometheus_duration(w.long_s)} "
                        f"{prometheus_duration(w.short_s)}"
                        for w in of_severity
                    ),
                },
            }
        )
    return {"name": f"evenkeel-slo-{slo.name}", "rules": rules}


def _recorded(length_s: Fraction) -> str:
    return f"slo:error_ratio:increase{prometheus_duration(length_s)}"


def _patience(slo: Slo) -> dict[str, str]:
    durations = {"for": slo.pending_s, "keep_firing_for": slo.keep_firing_s}
    return {
        key: prometheus_duration(seconds * slo.scale)
        for key, seconds in durations.items()
        if seconds
    }


def _condition(slo: Slo, window: AlertWindow, counters: Counters) -> str:
    """Return when a pair burns; the limit is one literal, for 14.4 * 0.001 is not 0.0144."""
    limit = repr(float(window.error_limit(slo.target)))
    long, short = (f'{_recorded(s)}{{slo="{slo.name}"}}' for s in (window.long_s, window.short_s))
    # sum() has no labels and the recorded ratio has one: match on none of them.
    parts = [f"{long} > {limit}", f"{short} > {limit}"]
    if slo.min_bad > 1:
        bad = counters.increase(counters.bad, slo.name, window.long_s)
        parts.append(f"on() {bad} >= {slo.min_bad}")
    if slo.confidence is not None and window.severity is Severity.PAGE:
        n = counters.increase(counters.events, slo.name, window.long_s)
        parts.append(f"on() {_wilson(slo.confidence, long, n)} > {limit}")
    return "(" + " and ".join(parts) + ")"


def _wilson(confidence: Fraction, ratio: str, n: str) -> str:
    z = confidence_z(confidence)
    p, half = f"sum({ratio})", repr(z * z / 2)
    root = f"sqrt({p} * (1 - {p}) / {n} + {z * z / 4!r} / {n} ^ 2)"
    return f"(({p} + {half} / {n} - {z!r} * {root}) / (1 + {z * z!r} / {n}))"
