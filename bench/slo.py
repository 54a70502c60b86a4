"""Compare SLO figures with published ones and with promtool. Prints a table, writes JSON.

    python bench/slo.py --cases 1000 --json build/bench/slo.json

Needs promtool (Debian's package `prometheus`); no server is started.
"""

import argparse
import random
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from bench.report import write_report
from bench.slo_promtool import CASES_A_FILE, make_case, our_firing, promtool_differences
from evenkeel.errors import EvenkeelError
from evenkeel.slo.burn_rates import DAY_S, DEFAULT_RULES, WindowRule, alert_windows
from evenkeel.slo.change_points import find_changes

SEED = 20261121
# Published factors by (period days, long window hours). SRE workbook, chapter 5, table 5-8 and
# its example rules; Sloth's defaults (slok/sloth, internal/alert/windows); Pyrra's, whose budget
# shares differ: theirs are factor × window / period (pyrra-dev/pyrra, slo/rules.go).
WORKBOOK = {(30, 1): 14.4, (30, 6): 6.0, (30, 24): 3.0, (30, 72): 1.0}
SLOTH = {**WORKBOOK, (28, 1): 13.44, (28, 6): 5.6, (28, 24): 2.8, (28, 72): 28 / 30}
PYRRA = {(28, 1): 14.0, (28, 6): 7.0, (28, 24): 2.0, (28, 96): 1.0}


def compare_with_promtool(num_cases: int, num_minutes: int) -> dict[str, Any]:
    """Return how often our replay and promtool disagree on whether an alert fires."""
    generator = random.Random(SEED)
    num_firing = num_different = 0
    began = time.monotonic()
    for start in range(0, num_cases, CASES_A_FILE):
        count = min(CASES_A_FILE, num_cases - start)
        cases = [make_case(f"case-{start + i}", generator, num_minutes) for i in range(count)]
        expected = set().union(*(our_firing(case) for case in cases))
        with tempfile.TemporaryDirectory() as folder:
            num_different += len(promtool_differences(cases, expected, Path(folder)))
        num_firing += len(expected)
    return {
        "series": num_cases,
        "minutes": num_cases * num_minutes,
        "firing_minutes": num_firing,
        "minutes_that_differ": num_different,
        "took_s": round(time.monotonic() - began, 1),
    }


def compare_factors() -> list[dict[str, Any]]:
    """Return our factor and each published one, and the detection time by their formula."""
    rows = []
    for source, published in (("workbook", WORKBOOK), ("sloth", SLOTH), ("pyrra", PYRRA)):
        for (days, hours), factor in published.items():
            rules = DEFAULT_RULES
            if source == "pyrra":
                share = Fraction(str(factor)) * hours / (days * 24)
                long_s = Fraction(hours * 3600)
                rules = (WindowRule(DEFAULT_RULES[0].severity, share, long_s, long_s / 12),)
            window = next(w for w in alert_windows(days * DAY_S, rules) if w.long_s == hours * 3600)
            target, error_ratio = Fraction("0.999"), Fraction(1)
            ours_s = window.detect_s(target, error_ratio)
            # The workbook's: (1 − SLO) / error ratio × window × burn rate.
            theirs_s = (1 - 0.999) / 1.0 * hours * 3600 * factor
            rows.append(
                {
                    "source": source,
                    "period_days": days,
                    "long_h": hours,
                    "published": factor,
                    "ours": float(window.factor),
                    "detect_at_total_outage_s": None if ours_s is None else float(ours_s),
                    "agrees": abs(float(window.factor) - factor) < 1e-9
                    and ours_s is not None
                    and abs(float(ours_s) - theirs_s) < 1e-6,
                }
            )
    return rows


def find_shifts(num_series: int, num_minutes: int = 240) -> dict[str, Any]:
    """Return how often change points are detected in noise, and in noise with a +20% shift.

    Noise: AR(1) of the logarithm with coefficient 0.6 and innovations of sd 0.04.
    """
    generator = np.random.default_rng(SEED)
    num_false = num_found = 0
    for _ in range(num_series):
        noise = np.zeros(num_minutes)
        for i in range(1, num_minutes):
            noise[i] = 0.6 * noise[i - 1] + generator.normal(0, 0.04)
        series = 0.3 * np.exp(noise)
        num_false += bool(find_changes(series.tolist(), 0.1))
        at = int(generator.integers(30, num_minutes - 30))
        series[at:] *= 1.2
        num_found += any(abs(c.index - at) <= 10 for c in find_changes(series.tolist(), 0.1))
    return {"series": num_series, "false_alarms": num_false, "shifts_found": num_found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="random series and windows")
    parser.add_argument("--minutes", type=int, default=240, help="length of each series")
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    try:
        promtool = compare_with_promtool(args.cases, args.minutes)
    except EvenkeelError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    factors = compare_factors()
    print("against promtool, over the exported rules:")
    for name, value in promtool.items():
        print(f"  {name:20} {value}")
    print("source    period  long  published  ours      detects an outage in  agrees")
    for row in factors:
        detects = f"{row['detect_at_total_outage_s']:.2f} s"
        print(
            f"{row['source']:9} {row['period_days']:4}d {row['long_h']:5}h "
            + f"{row['published']:10.4f} {row['ours']:8.4f}  {detects:>20}  {row['agrees']}"
        )
    shifts = find_shifts(100)
    print(f"change points in {shifts['series']} null series: {shifts['false_alarms']}")
    print(f"+20% shifts found in as many: {shifts['shifts_found']}")
    figures = {"promtool": promtool, "factors": factors, "change_points": shifts}
    write_report(args.json, figures)
    is_good = not shifts["false_alarms"] and shifts["shifts_found"] >= 0.95 * shifts["series"]
    is_good &= not promtool["minutes_that_differ"] and all(row["agrees"] for row in factors)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
