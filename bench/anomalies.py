"""Simulate what the spike rules find, and how often they are wrong. Prints two tables, writes JSON.

    python bench/anomalies.py --months 3 --trials 100 --json build/bench/anomalies.json

No server is started: traffic is drawn request by request, and the rule is judged every 30 seconds
over its window, as the collector does. A false alarm is a firing in traffic without any change; it
lasts until the rule has been quiet for fifteen minutes, as in the default rules. The first day of a
cohort is reported apart: nothing is known then of the time of day.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.report import write_report
from evenkeel.slo.spikes import LEVELS, WIDTHS, Spike, SpikePast, SpikeWindow, judge_spike

SEED = 20261125
Floats = NDArray[np.float64]
DAY_S = 86400.0
WINDOW_S = 300.0
EVERY_S = 30.0
LATE_S = 60.0
KEEP_S = 900.0
TOKENS = Spike("input_tokens", Fraction(300))
SHARE = Spike("repeated_share", Fraction(300), min_effect=0.05)
CHANGES = {"tokens": "all requests have twice the tokens", "share": "1% become 15%"}


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests of one cohort: when they end, their tokens, and whether they have the property."""

    ends_s: Floats
    tokens: Floats
    has_it: Floats


Draw = Callable[[np.random.Generator, float, float], Traffic]


def _arrivals(random: np.random.Generator, days: float, rate: float, swing: float) -> Floats:
    """Return arrivals; the rate swings over the day from 1 / swing of its peak to its peak."""
    num = random.poisson(rate * days * DAY_S)
    times = np.sort(random.uniform(0, days * DAY_S, num))
    height = (1 - np.cos(2 * np.pi * times / DAY_S)) / 2
    kept = random.uniform(size=num) < (1 / swing + (1 - 1 / swing) * height)
    return times[kept]


def stationary(random: np.random.Generator, days: float, rate: float) -> Traffic:
    """Return independent requests; tokens are lognormal with a spread of 1."""
    times = _arrivals(random, days, rate, 1)
    tokens = np.exp(random.normal(6, 1, len(times)))
    return Traffic(times, tokens, (random.uniform(size=len(times)) < 0.01).astype(float))


def sessions(random: np.random.Generator, days: float, rate: float) -> Traffic:
    """Return requests that come in sessions of 10: alike in tokens, and in loops if one is."""
    begun = _arrivals(random, days, rate / 10, 1)
    times = (
        np.repeat(begun, 10)
        + random.exponential(60, 10 * len(begun)).reshape(-1, 10).cumsum(axis=1).ravel()
    )
    level = np.repeat(random.normal(6, 0.8, len(begun)), 10)
    tokens = np.exp(level + random.normal(0, 0.4, len(times)))
    bad = np.repeat(random.uniform(size=len(begun)) < 0.03, 10)
    has_it = (bad & (random.uniform(size=len(times)) < 0.33)).astype(float)
    order = np.argsort(times)
    kept = order[times[order] < days * DAY_S]
    return Traffic(times[kept], tokens[kept], has_it[kept])


def daily(random: np.random.Generator, days: float, rate: float) -> Traffic:
    """Return traffic that swings tenfold over the day; tokens and the property double by night."""
    times = _arrivals(random, days, rate, 10)
    night = (1 + np.cos(2 * np.pi * times / DAY_S)) / 2
    tokens = np.exp(random.normal(6, 1, len(times)) + np.log(2) * night)
    return Traffic(
        times, tokens, (random.uniform(size=len(times)) < 0.01 * (1 + night)).astype(float)
    )


def nightly_batch(random: np.random.Generator, days: float, rate: float) -> Traffic:
    """Return daily traffic with a batch at two, give or take ten minutes: an hour of other work."""
    calm = daily(random, days, rate)
    begins = np.arange(int(days)) * DAY_S + 2 * 3600 + random.uniform(-600, 600, int(days))
    parts = [np.sort(random.uniform(b, b + 3600, random.poisson(2 * rate * 3600))) for b in begins]
    times = np.concatenate(parts)
    tokens = np.exp(random.normal(6 + np.log(6), 0.5, len(times)))
    has_it = (random.uniform(size=len(times)) < 0.2).astype(float)
    return _joined(calm, Traffic(times, tokens, has_it))


def weekly(random: np.random.Generator, days: float, rate: float) -> Traffic:
    """Return daily traffic whose weekends have a quarter of the requests, twice as long."""
    calm = daily(random, days, rate)
    is_weekend = (calm.ends_s // DAY_S).astype(int) % 7 >= 5
    kept = ~is_weekend | (random.uniform(size=len(calm.ends_s)) < 0.25)
    tokens = calm.tokens * np.where(is_weekend, 2.0, 1.0)
    return Traffic(calm.ends_s[kept], tokens[kept], calm.has_it[kept])


def _joined(one: Traffic, other: Traffic) -> Traffic:
    ends = np.concatenate([one.ends_s, other.ends_s])
    order = np.argsort(ends)
    return Traffic(
        ends[order],
        np.concatenate([one.tokens, other.tokens])[order],
        np.concatenate([one.has_it, other.has_it])[order],
    )


SCENARIOS: dict[str, Draw] = {
    "stationary": stationary,
    "sessions": sessions,
    "daily": daily,
    "nightly batch": nightly_batch,
    "weekly": weekly,
}


class Replay:
    """Judges one rule over drawn traffic."""

    def __init__(self, test: Spike, traffic: Traffic, days: float) -> None:
        self._test = test
        self._ends = traffic.ends_s
        self._values = traffic.tokens if test.is_tokens else traffic.has_it
        num = int(days * DAY_S // WINDOW_S)
        self._requests = np.zeros(num)
        self._past = np.full(num, np.nan)
        edges = np.searchsorted(self._ends, np.arange(num + 1) * WINDOW_S)
        for place, (first, last) in enumerate(pairwise(edges)):
            if last > first:
                self._requests[place] = last - first
                of_window = self._values[first:last]
                self._past[place] = (
                    np.median(of_window) if test.is_tokens else float(of_window.mean())
                )

    def holds(self, now_s: float) -> bool:
        """Return whether the rule holds at a time."""
        last = int((now_s - LATE_S) // WINDOW_S)
        windows = [self._window(now_s, width) for width in WIDTHS]
        first = max(last - self._test.num_past, 0)
        past = SpikePast(self._requests[first:last], self._past[first:last])
        return judge_spike(self._test, windows, past).holds is True

    def _window(self, now_s: float, width: int) -> SpikeWindow:
        first, end = np.searchsorted(self._ends, (now_s - width * WINDOW_S, now_s))
        of_window = self._values[first:end]
        if len(of_window) < self._test.min_requests:
            return SpikeWindow(width, len(of_window))
        if not self._test.is_tokens:
            return SpikeWindow(width, len(of_window), share=float(of_window.mean()))
        of_window = np.sort(of_window)
        places = [int(level * (len(of_window) - 1) + 0.5) for level in LEVELS]
        return SpikeWindow(width, len(of_window), tuple(of_window[places]))

    def alarms(self, from_s: float, to_s: float) -> list[float]:
        """Return when the rule fired in a span."""
        fired, until = [], -1.0
        for now_s in np.arange(from_s, to_s, EVERY_S):
            if self.holds(now_s):
                if now_s > until:
                    fired.append(float(now_s))
                until = now_s + KEEP_S
        return fired


def false_alarms(months: int, rates: list[float]) -> list[dict[str, Any]]:
    """Return false alarms a month by scenario, rate and kind of rule."""
    rows = []
    for name, draw in SCENARIOS.items():
        for rate in rates:
            for kind, test in (("tokens", TOKENS), ("share", SHARE)):
                random = np.random.default_rng(SEED)
                first_day = later = 0
                began = time.monotonic()
                for _ in range(months):
                    replay = Replay(test, draw(random, 31, rate), 31)
                    fired = replay.alarms(3600.0, 31 * DAY_S)
                    first_day += sum(at < DAY_S for at in fired)
                    later += sum(at >= DAY_S for at in fired)
                rows.append(
                    {
                        "traffic": name,
                        "requests_per_s": rate,
                        "kind": kind,
                        "cohort_months": months,
                        "false_alarms_per_month": later / months,
                        "false_alarms_on_first_day": first_day / months,
                        "took_s": round(time.monotonic() - began, 1),
                    }
                )
                print(_line(rows[-1]), flush=True)
    return rows


def detections(trials: int, rates: list[float]) -> list[dict[str, Any]]:
    """Return how soon a change is found: twice the tokens, or a property that jumps."""
    rows = []
    for name, draw in SCENARIOS.items():
        for rate in rates:
            for kind, test in (("tokens", TOKENS), ("share", SHARE)):
                random = np.random.default_rng(SEED + 1)
                found = []
                for _ in range(max(trials // 10, 1)):
                    calm = draw(random, 12, rate)
                    # Ten changes per drawn week, each on traffic that is otherwise unchanged.
                    for at in random.uniform(9 * DAY_S, 12 * DAY_S - 7200, min(trials, 10)):
                        found.append(_found_after(test, calm, float(at), random))
                minutes = [each / 60 for each in found if each is not None]
                rows.append(
                    {
                        "traffic": name,
                        "requests_per_s": rate,
                        "kind": kind,
                        "trials": len(found),
                        "found_within_10_min": sum(m <= 10 for m in minutes) / len(found),
                        "found_within_1_h": len(minutes) / len(found),
                        "median_min": float(np.median(minutes)) if minutes else None,
                    }
                )
                print(_line(rows[-1]), flush=True)
    return rows


def _found_after(
    test: Spike, calm: Traffic, at: float, random: np.random.Generator
) -> float | None:
    """Return how many seconds after a change the rule fires; None within an hour."""
    after = calm.ends_s >= at
    tokens = np.where(after, 2 * calm.tokens, calm.tokens)
    jumped = np.maximum(calm.has_it, random.uniform(size=len(after)) < 0.15)
    changed = Traffic(calm.ends_s, tokens, np.where(after, jumped, calm.has_it))
    near = changed.ends_s < at + 2 * 3600
    replay = Replay(
        test, Traffic(changed.ends_s[near], changed.tokens[near], changed.has_it[near]), 12
    )
    for now_s in np.arange(at + EVERY_S, at + 3600, EVERY_S):
        if replay.holds(now_s):
            return float(now_s - at)
    return None


def _line(row: dict[str, Any]) -> str:
    return "  ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in row.items()
    )


def main() -> int:
    """Run both sides."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--months", type=int, default=3, help="cohort-months per scenario")
    parser.add_argument("--trials", type=int, default=100, help="changes per scenario")
    parser.add_argument("--rates", default="0.2,1", help="requests per second at the peak")
    parser.add_argument("--json", type=Path, help="where the figures are written")
    args = parser.parse_args()
    rates = [float(each) for each in args.rates.split(",")]
    found = {
        "seed": SEED,
        "changes": CHANGES,
        "false_alarms": false_alarms(args.months, rates),
        "detections": detections(args.trials, rates),
    }
    worst = max(row["false_alarms_per_month"] for row in found["false_alarms"])  # type: ignore[attr-defined, index]
    print(f"most false alarms per cohort and month, after the first day: {worst:.2f}")
    write_report(args.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
