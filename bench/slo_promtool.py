"""Judge random SLOs and series with our replay and, over the exported rules, with promtool."""

import os
import random
import re
import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from evenkeel.errors import CannotMeasureError
from evenkeel.slo.backtest import replay
from evenkeel.slo.burn_rates import DAY_S, MINUTE_S, Counts, Severity, WindowRule
from evenkeel.slo.model import Indicator, Metric, Slo
from evenkeel_collector.slo.formats.prometheus import BAD_METRIC, EVENTS_METRIC, prometheus_rules

CASES_A_FILE = 50
_TARGETS = ("1/2", "0.9", "0.95", "0.99", "0.995", "0.999", "2/3")
Firing = set[tuple[str, str, int]]


@dataclass(frozen=True, slots=True)
class Case:
    """One SLO and its counts per minute, starting at minute 0."""

    slo: Slo
    minutes: list[tuple[int, int]]


def find_promtool() -> str:
    """Return the path of promtool.

    Raises:
        CannotMeasureError: If it is not installed.
    """
    path = shutil.which("promtool")
    if path is None:
        raise CannotMeasureError("promtool is missing: apt-get install prometheus")
    return path


def make_case(name: str, generator: random.Random, num_minutes: int) -> Case:
    """Return a random SLO, with limits that counts often hit exactly, and a random series."""
    target = Fraction(generator.choice(_TARGETS))
    rules = []
    for _ in range(generator.randint(1, 3)):
        long = generator.choice((2, 3, 5, 12, 30, 60))
        short = generator.randint(1, long)
        # The limit first, then the budget share that makes it: shares that are round never tie.
        limit = (1 - target) * generator.choice((Fraction(1), Fraction(2), Fraction("14.4")))
        limit = min(limit, Fraction(generator.randint(1, 9), 10))
        budget = limit / (1 - target) * long * MINUTE_S / (30 * DAY_S)
        severity = generator.choice(list(Severity))
        rules.append(WindowRule(severity, budget, long * MINUTE_S, short * MINUTE_S))
    slo = Slo(
        name,
        name,
        Indicator(Metric.AVAILABILITY, None),
        target,
        30 * DAY_S,
        tuple(rules),
        min_bad=generator.choice((1, 1, 3)),
        confidence=generator.choice((None, Fraction("0.95"))),
    )
    return Case(slo, _make_minutes(generator, num_minutes))


_FIRING = 'ALERTS{alertname="SloBudgetBurn", alertstate="firing"}'
_QUIET_MINUTES = 30


def _make_minutes(generator: random.Random, num_minutes: int) -> list[tuple[int, int]]:
    minutes: list[tuple[int, int]] = []
    while len(minutes) < num_minutes:
        busy = generator.choice((0, 1, 10, 10, 1000))
        error_ratio = generator.choice((0.0, 0.001, 0.01, 0.1, 0.5, 1.0))
        for _ in range(generator.randint(1, 25)):
            total = generator.randint(0, busy)
            minutes.append((total, sum(generator.random() < error_ratio for _ in range(total))))
    return minutes[:num_minutes]


def our_firing(case: Case) -> Firing:
    """Return SLO, severity and minute wherever our replay holds an alert."""
    counts = {i: Counts(float(t), float(b)) for i, (t, b) in enumerate(case.minutes)}
    return {
        (alert.slo, alert.severity.value, minute)
        for alert in replay(case.slo, counts).alerts
        for minute in range(alert.from_minute, alert.to_minute + 1)
    }


def promtool_differences(cases: list[Case], expected: Firing, folder: Path) -> list[str]:
    """Run promtool over the exported rules; return the minutes where it finds other alerts.

    Raises:
        CannotMeasureError: If promtool is missing or fails otherwise than by a difference.
    """
    rules = folder / "rules.yml"
    rules.write_text(prometheus_rules([case.slo for case in cases]), encoding="utf-8")
    # Counters that stood still before: windows longer than the history then use what exists.
    offset = max(int(rule.long_s // 60) for case in cases for rule in case.slo.rules)
    # Both judge past the last event.
    quiet = [0] * _QUIET_MINUTES
    num_minutes = max(len(case.minutes) for case in cases) + _QUIET_MINUTES
    by_minute: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for name, severity, minute in sorted(expected):
        by_minute[minute].append({"exp_labels": {"slo": name, "severity": severity}})
    test = {
        "rule_files": [rules.name],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {
                        "series": f'{metric}{{slo="{case.slo.name}"}}',
                        "values": _running_sum(
                            offset, [pair[index] for pair in case.minutes] + quiet
                        ),
                    }
                    for case in cases
                    for index, metric in enumerate((EVENTS_METRIC, BAD_METRIC))
                ],
                "promql_expr_test": [
                    {
                        "expr": f"count by (slo, severity) ({_FIRING})",
                        "eval_time": f"{offset + minute}m",
                        "exp_samples": [
                            {"labels": _labels(alert["exp_labels"]), "value": 1}
                            for alert in by_minute[minute]
                        ],
                    }
                    for minute in range(num_minutes)
                ],
            }
        ],
    }
    path = folder / "test.yml"
    path.write_text(yaml.dump(test, Dumper=yaml.CSafeDumper, width=10**9), encoding="utf-8")
    result = subprocess.run(
        [find_promtool(), "test", "rules", path.name],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        env={"PATH": os.defpath},
    )
    said = result.stdout + result.stderr
    failed = re.findall(r"time: (\S+),", said)
    if result.returncode and not failed:
        raise CannotMeasureError(f"promtool failed: {said.strip()[:500]}")
    return failed


def _labels(labels: dict[str, str]) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _running_sum(offset: int, values: list[int]) -> str:
    total, samples = 0, ["0"] * offset
    for value in values:
        total += value
        samples.append(str(total))
    return " ".join(samples)
