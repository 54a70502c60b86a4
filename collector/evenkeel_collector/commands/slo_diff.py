"""`evenkeel slo diff`: compare the alerts two SLO files would have fired."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenkeel_collector.commands.stored_minutes import (
    add_store_arguments,
    check_days,
    last_days,
    stored_minutes,
)

if TYPE_CHECKING:
    from evenkeel.slo.backtest import AlertSpan
    from evenkeel.slo.model import Slo


@dataclass(frozen=True, slots=True)
class AlertDiff:
    """How one SLO's alerts differ between two files.

    Attributes:
        name: The SLO's name.
        appear: Alerts of the new file that overlap no alert of the same severity in the old one.
        disappear: Alerts of the old file that overlap none in the new one.
        num_stay: Alerts of the new file that overlap one in the old file.
        is_in_old: Whether the old file has the SLO.
        is_in_new: Whether the new one has it.
    """

    name: str
    appear: tuple[AlertSpan, ...]
    disappear: tuple[AlertSpan, ...]
    num_stay: int
    is_in_old: bool = True
    is_in_new: bool = True


def add_diff(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    diff = verbs.add_parser("diff", help="compare the alerts two SLO files would have fired")
    diff.add_argument("old", type=Path, metavar="OLD", help="the current SLO file")
    diff.add_argument("new", type=Path, metavar="NEW", help="the SLO file to compare")
    diff.add_argument(
        "--days",
        type=int,
        default=30,
        metavar="N",
        help="days of history to replay (default %(default)s)",
    )
    add_store_arguments(diff)
    diff.add_argument("--json", action="store_true", help="print JSON")
    diff.set_defaults(run=_run_diff)


def _run_diff(args: argparse.Namespace) -> int:
    from evenkeel.slo.file.slo_file import read_slo_file

    check_days(args.days)
    old, new = ({slo.name: slo for slo in read_slo_file(p).slos} for p in (args.old, args.new))
    names = [*old, *(name for name in new if name not in old)]
    changed = [name for name in names if _judged(old.get(name)) != _judged(new.get(name))]
    before, after = (
        _replayed(args, [file[name] for name in changed if name in file]) for file in (old, new)
    )
    # A grouped SLO is replayed once per group.
    replayed = [*before, *(name for name in after if name not in before)]
    diffs = [
        compare_alerts(
            name, before.get(name, ()), after.get(name, ()), name in before, name in after
        )
        for name in replayed
    ]
    if args.json:
        print(json.dumps({"days": args.days, "slos": [diff_json(diff) for diff in diffs]}))
    else:
        print(diff_text(diffs, args.days))
    return 0


def _judged(slo: Slo | None) -> Slo | None:
    """Return the parts of an SLO that decide its alerts."""
    return slo and replace(slo, title="", kept={}, labels={})


def _replayed(args: argparse.Namespace, slos: Sequence[Slo]) -> dict[str, Sequence[AlertSpan]]:
    from evenkeel.slo.backtest import replay

    return {
        stored.slo.name: replay(stored.slo, stored.minutes, stored.until).alerts
        for stored in stored_minutes(args.url, args.data_dir, args.days, slos)
    }


def compare_alerts(
    name: str,
    old: Sequence[AlertSpan],
    new: Sequence[AlertSpan],
    is_in_old: bool = True,
    is_in_new: bool = True,
) -> AlertDiff:
    """Return the alerts that only one of two SLO files would have fired."""
    appear = tuple(alert for alert in new if not _has_like(alert, old))
    disappear = tuple(alert for alert in old if not _has_like(alert, new))
    return AlertDiff(name, appear, disappear, len(new) - len(appear), is_in_old, is_in_new)


def _has_like(alert: AlertSpan, others: Sequence[AlertSpan]) -> bool:
    return any(
        other.severity is alert.severity
        and other.from_minute <= alert.to_minute
        and alert.from_minute <= other.to_minute
        for other in others
    )


def diff_json(diff: AlertDiff) -> dict[str, Any]:
    """Return the differences as JSON."""
    from evenkeel_collector.commands.slo_backtest_text import alert_json

    return {
        "slo": diff.name,
        "is_in_old": diff.is_in_old,
        "is_in_new": diff.is_in_new,
        "appear": [alert_json(alert) for alert in diff.appear],
        "disappear": [alert_json(alert) for alert in diff.disappear],
        "num_stay": diff.num_stay,
    }


def diff_text(diffs: Sequence[AlertDiff], days: int) -> str:
    """Return the differences per SLO (+ added, - removed), then a summary."""
    from evenkeel_collector.commands.slo_backtest_text import alert_text

    if not diffs:
        return "no SLO changed"
    blocks = []
    for diff in diffs:
        note = "" if diff.is_in_old else " (new)"
        note = note if diff.is_in_new else " (removed)"
        signed = [("+", alert) for alert in diff.appear]
        signed += [("-", alert) for alert in diff.disappear]
        signed.sort(key=lambda pair: (pair[1].from_minute, pair[0]))
        lines = [f"{sign} {alert_text(alert)}" for sign, alert in signed] or ["  no alert changed"]
        blocks.append("\n".join([diff.name + note, *lines]))
    num_appear = sum(len(diff.appear) for diff in diffs)
    num_disappear = sum(len(diff.disappear) for diff in diffs)
    num_stay = sum(diff.num_stay for diff in diffs)
    blocks.append(
        f"of the {last_days(days)}: {num_appear} would appear, {num_disappear} would disappear, "
        f"{num_stay} stay"
    )
    return "\n\n".join(blocks)
