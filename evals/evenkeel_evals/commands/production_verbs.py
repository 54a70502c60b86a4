"""Arguments of the verbs of `evenkeel eval` that work on production traffic; cheap to import."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from evenkeel.cli import duration_argument
from evenkeel_evals.commands.arguments import (
    add_asking,
    add_damaged,
    add_json,
    add_limit,
    add_report,
    add_settings,
    add_verb,
)

LIVE_EPILOG = """\
example:
  evenkeel eval live live.toml --state build/live
  evenkeel eval live live.toml --state build/live --once --since 1h --json
  evenkeel eval live live.toml --state build/live --act     # what [[dial_back]] says, for real

Needs stored content: `evenkeel serve --record-content`, and the tenants in the collector's
content_tenants. docs/guide/evals.md shows the file. Exit codes: 0 as good as it should be, 1 a
scorer drifts, 2 bad usage or configuration, 3 nothing could be scored
"""


GROW_EPILOG = """\
examples:
  evenkeel eval grow golden_datasets/support --since 7d
  evenkeel eval grow golden_datasets/support --accept grown-1a2b3c4d5e --reference '9 EUR'
  evenkeel eval grow golden_datasets/support --reject grown-1a2b3c4d5e --reason 'no question'

Failures of live evaluations and of feedback become candidates; only a person makes them items.
"""


BISECT_EPILOG = """\
example:
  evenkeel eval bisect changes.toml --since 1h --limit 300 --gate 'shift_e2e<=+10%'

changes.toml names a side that was good, `base = "good.toml"`, and every [[change]] since, in order.
Exit codes: 0 nothing moved, 1 a change is named, 2 bad usage, 3 a comparison could not tell
"""


def add_production_verbs(verbs: Any) -> None:
    """Add the verbs to the parser of `evenkeel eval`."""
    live = add_verb(verbs, "live", "score a known share of production requests", LIVE_EPILOG)
    live.add_argument("config", type=Path, help="what to draw and how to score it, a TOML file")
    live.add_argument("--state", type=Path, required=True, metavar="DIR", help="keeps the windows")
    dialling = ("collector_url", "collector_token", "prompts_dir", "api_key")
    add_settings(live, ("store_url", "otlp_endpoint", *dialling))
    live.add_argument(
        "--act",
        action="store_true",
        help="do what [[dial_back]] says when production drops; without it, it is only said",
    )
    live.add_argument(
        "--since",
        type=duration_argument,
        default=600.0,
        metavar="DURATION",
        help="where the first window begins (default: 10m ago)",
    )
    live.add_argument("--once", action="store_true", help="evaluate what is due, and end")
    live.add_argument(
        "--for",
        dest="duration",
        type=duration_argument,
        metavar="DURATION",
        help="end after this time",
    )
    live.add_argument("--json", action="store_true", help="print one JSON object a window")
    live.set_defaults(run=_run_live)
    _add_grow(verbs)
    _add_bisect(verbs)


def _run_grow(args: argparse.Namespace) -> int:
    from evenkeel_evals.commands.grow import run

    return run(args)


def _add_grow(verbs: Any) -> None:
    grow = add_verb(verbs, "grow", "propose items for a dataset from failures", GROW_EPILOG)
    grow.add_argument("dataset", type=Path, help="folder of a golden dataset")
    add_settings(grow, ("store_url", "cache_dir"))
    grow.add_argument(
        "--since",
        type=duration_argument,
        default=7 * 86400.0,
        metavar="DURATION",
        help="failures found since then (default: 7d)",
    )
    grow.add_argument(
        "--limit",
        type=int,
        default=2000,
        metavar="N",
        help="compare the newest N failures (default: 2000)",
    )
    what = grow.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="show what waits, ask the store nothing")
    what.add_argument("--accept", metavar="ID", help="make a candidate an item")
    what.add_argument("--reject", metavar="ID", help="turn a candidate down")
    what.add_argument(
        "--reviewed", action="store_true", help="also make items of what people accepted"
    )
    grow.add_argument("--reference", help="with --accept: what the answer should be")
    grow.add_argument("--scorer", default="normalised", help="of new items (default: normalised)")
    grow.add_argument("--tags", default="grown", help="of new items, with commas (default: grown)")
    grow.add_argument("--reason", help="with --reject")
    add_json(grow)
    grow.set_defaults(run=_run_grow)


def _run_bisect(args: argparse.Namespace) -> int:
    from evenkeel_evals.commands.bisect import run

    return run(args)


def _add_bisect(verbs: Any) -> None:
    bisect = add_verb(verbs, "bisect", "name the setting that moved a metric", BISECT_EPILOG)
    add = bisect.add_argument
    add("changes", type=Path, help="a good side and the changes since, a TOML file")
    add("--gate", required=True, help="the metric and how much of it is tolerated")
    add("--dataset", type=Path, metavar="DIR", help="ask a dataset instead of recorded traffic")
    add_damaged(bisect)
    add(
        "--since",
        type=duration_argument,
        default=3600.0,
        metavar="DURATION",
        help="traffic recorded since then (default: 1h)",
    )
    add_limit(bisect, "ask N requests")
    add("--repeats", type=int, default=1, metavar="N", help="ask each N times (default: 1)")
    add_asking(bisect)
    add_report(bisect, "keep every comparison there, and go on from it")
    add_json(bisect)
    bisect.set_defaults(run=_run_bisect)


def _run_live(args: argparse.Namespace) -> int:
    from evenkeel_evals.commands.live import run

    return run(args)
