"""Arguments of the verbs of `evenkeel eval` that work on production traffic; cheap to import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evenkeel.cli import duration_argument
from evenkeel_evals.commands.arguments import (
    add_asking,
    add_damaged,
    add_json,
    add_limit,
    add_repeats,
    add_report,
    add_settings,
    add_since,
    add_verb,
)

LIVE_EPILOG = """\
example:
  evenkeel eval live live.toml --state build/live
  evenkeel eval live live.toml --state build/live --once --since 1h --json
  evenkeel eval live live.toml --state build/live --act     # dials back for real

Needs stored content: `evenkeel serve --record-content`, and the tenants in the collector's
content_tenants. docs/guide/evals.md describes the file. Exit codes: 0 as good as expected, 1 a
scorer has drifted, 2 bad usage or configuration, 3 nothing could be scored
"""


GROW_EPILOG = """\
examples:
  evenkeel eval grow golden_datasets/support --since 7d
  evenkeel eval grow golden_datasets/support --accept grown-1a2b3c4d5e --reference '9 EUR'
  evenkeel eval grow golden_datasets/support --reject grown-1a2b3c4d5e --reason 'no question'

Failures in live evaluations and feedback become candidates; only a person can accept them.
"""


BISECT_EPILOG = """\
example:
  evenkeel eval bisect changes.toml --since 1h --limit 300 --gate 'shift_e2e<=+10%'

changes.toml names a good side, `base = "good.toml"`, and every [[change]] since then, in order.
Exit codes: 0 nothing moved the metric, 1 a change did, 2 bad usage, 3 a comparison was inconclusive
"""


def add_production_verbs(verbs: Any) -> None:
    """Add the verbs to the parser of `evenkeel eval`."""
    live = add_verb(verbs, "live", "score a sample of production requests", LIVE_EPILOG)
    live.add_argument("config", type=Path, help="TOML file: what to sample and how to score it")
    live.add_argument(
        "--state",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder that holds the scored windows",
    )
    dialling = ("collector_url", "collector_token", "prompts_dir", "api_key")
    add_settings(live, ("store_url", "otlp_endpoint", "judge_api_key", *dialling))
    live.add_argument(
        "--act",
        action="store_true",
        help="act on [[dial_back]] when quality drops; otherwise only report what it would do",
    )
    add_since(live, 600.0, "how long ago the first window starts (default: 10m)")
    live.add_argument("--once", action="store_true", help="evaluate what is due and exit")
    live.add_argument(
        "--for",
        dest="duration",
        type=duration_argument,
        metavar="DURATION",
        help="exit after this time",
    )
    live.add_argument("--json", action="store_true", help="print one JSON object per window")
    _add_grow(verbs)
    _add_bisect(verbs)


def _add_grow(verbs: Any) -> None:
    grow = add_verb(verbs, "grow", "propose dataset items from production failures", GROW_EPILOG)
    grow.add_argument("dataset", type=Path, help="folder of a golden dataset")
    add_settings(grow, ("store_url", "cache_dir"))
    add_since(grow, 7 * 86400.0, "how far back to look for failures (default: 7d)")
    grow.add_argument(
        "--limit",
        type=int,
        default=2000,
        metavar="N",
        help="consider only the newest N failures (default: 2000)",
    )
    what = grow.add_mutually_exclusive_group()
    what.add_argument(
        "--list", action="store_true", help="list pending candidates without reading the store"
    )
    what.add_argument("--accept", metavar="ID", help="add a candidate to the dataset")
    what.add_argument("--reject", metavar="ID", help="reject a candidate")
    what.add_argument(
        "--reviewed", action="store_true", help="also add candidates accepted on the dashboard"
    )
    grow.add_argument("--reference", help="with --accept: the right answer")
    grow.add_argument(
        "--scorer", default="normalised", help="scorer of new items (default: normalised)"
    )
    grow.add_argument(
        "--tags", default="grown", help="tags of new items, separated by commas (default: grown)"
    )
    grow.add_argument("--reason", help="with --reject: why")
    add_json(grow)


def _add_bisect(verbs: Any) -> None:
    bisect = add_verb(verbs, "bisect", "find the change that made a metric worse", BISECT_EPILOG)
    add = bisect.add_argument
    add("changes", type=Path, help="TOML file: a good side and the changes since then")
    add("--gate", required=True, help="the metric and the largest loss allowed")
    add("--dataset", type=Path, metavar="DIR", help="use a dataset instead of recorded traffic")
    add_damaged(bisect)
    add_since(bisect, 3600.0, "how far back to take traffic from (default: 1h)")
    add_limit(bisect, "use N requests")
    add_repeats(bisect, "ask each request N times (default: 1)")
    add_asking(bisect)
    add_report(bisect, "write every comparison to DIR; rerun with the same DIR to resume")
    add_json(bisect)
