"""`evenkeel eval`: regression and A/B runs over golden datasets, and their statistics."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from evenkeel.cli import Command
from evenkeel.errors import ConfigurationError
from evenkeel_evals.commands.arguments import (
    add_asking,
    add_calibration,
    add_damaged,
    add_gate,
    add_json,
    add_limit,
    add_prices,
    add_repeats,
    add_report,
    add_settings,
    add_traffic,
    add_verb,
    add_verdict,
    at_least,
    run_later,
)
from evenkeel_evals.commands.production_verbs import add_production_verbs

EPILOG = """\
examples:
  evenkeel eval run golden_datasets/support \\
      --baseline golden_datasets/support/sides/full.toml \\
      --candidate golden_datasets/support/sides/short.toml \\
      --gate 'accuracy>=-1%, p95_ttft<=+5%'
  echo '{"n11": 40, "n10": 9, "n01": 2, "n00": 5}' | evenkeel eval stats paired_binary

exit codes: 0 passed, 1 regressed, 2 bad usage or configuration, 3 inconclusive
"""

RUN_EPILOG = """\
example:
  evenkeel eval run golden_datasets/support \\
      --baseline golden_datasets/support/sides/full.toml \\
      --candidate golden_datasets/support/sides/short.toml \\
      --gate 'accuracy>=-1%, p95_ttft<=+5%, shift_ttft<=+3%'

exit codes: 0 better, no worse, or worse within the tolerance; 1 regressed; 2 bad usage or
configuration; 3 inconclusive, or could not measure
"""

COMPARE_EPILOG = """\
example:
  evenkeel eval compare golden_datasets/support \\
      --baseline build/monday --candidate build/today --gate 'accuracy>=-1%'

exit codes: 0 better, no worse, or worse within the tolerance; 1 regressed; 2 bad usage or a
different dataset; 3 inconclusive, or could not measure
"""

JUDGE_EPILOG = """\
example:
  evenkeel eval judge --dataset golden_datasets/faq \\
      --baseline monday.jsonl --candidate today.jsonl --gate 'accuracy>=-1%'

each line of an answers file: {"id": ..., "answer": ..., "ttft_s": ..., "e2e_s": ..., "error": ...}
and, for a gate on cost: "model", "input_tokens", "cached_tokens", "output_tokens",
"reasoning_tokens", or "cost"
exit codes: 0 better, no worse, or worse within the tolerance; 1 regressed; 2 bad usage;
3 inconclusive, or could not measure
"""

PLAN_EPILOG = """\
example:
  evenkeel eval plan golden_datasets/support --gate 'accuracy>=-1%, p95_ttft<=+5%'

exit codes: 0 every gate can pass and fail, 2 bad usage, 3 a gate cannot be decided
"""

CALIBRATE_EPILOG = """\
example:
  evenkeel eval calibrate golden_datasets/support \\
      --side golden_datasets/support/sides/full.toml --runs 3 --report build/aa
  evenkeel eval plan golden_datasets/support --calibration build/aa/calibration.json

exit codes: 0 every gate is above the noise; 2 bad usage; 3 a gate is below it, or could not
measure
"""

IMPORT_EPILOG = """\
examples:
  evenkeel eval import gsm8k test.jsonl --into golden_datasets/gsm8k --limit 200
  evenkeel eval import promptfoo promptfooconfig.yaml --into golden_datasets/faq
"""

LOCK_EPILOG = """\
examples:
  evenkeel eval lock golden_datasets/faq --note 'corrected the opening hours'
  evenkeel eval lock golden_datasets/faq --check

exit codes: 0 locked, or unchanged; 1 --check found a change; 2 bad usage
"""

STATS_EPILOG = """\
example:
  echo '{"x": 17, "n": 20}' | evenkeel eval stats proportion

docs/inside/statistics.md lists every function with its input, output, formula and source.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _add_run(verbs)
    _add_compare(verbs)
    _add_judge(verbs)
    _add_plan(verbs)
    _add_calibrate(verbs)
    add_production_verbs(verbs)
    _add_import(verbs)
    _add_lock(verbs)
    _add_stats(verbs)


def _add_run(verbs: Any) -> None:
    summary = "ask baseline and candidate the same items, interleaved, and judge the gates"
    run = add_verb(verbs, "run", summary, RUN_EPILOG)
    add = run.add_argument
    add("dataset", type=Path, nargs="?", help="folder of a golden dataset")
    add_traffic(run)
    add("--baseline", type=Path, required=True, metavar="FILE", help="TOML file of side A")
    add("--candidate", type=Path, required=True, metavar="FILE", help="TOML file of side B")
    add_gate(run)
    add_prices(run, "without one, cost is your own engine's seconds, from the store")
    add_damaged(run)
    add_limit(run)
    add_asking(run)
    add(
        "--warmup",
        type=at_least(0),
        metavar="N",
        help="ask N pairs first and discard them (default: --concurrency)",
    )
    add(
        "--mode",
        choices=("fixed", "sequential", "anytime"),
        default="fixed",
        help="when to decide: at the end (default), at up to five points, or continuously",
    )
    add_repeats(run, "ask each item N times (default: 1)")
    add(
        "--guard",
        action="store_true",
        help="repeat items the candidate lost, to find those that now always fail",
    )
    add(
        "--answer-cache",
        type=Path,
        metavar="DIR",
        help="store answers in DIR and, unless a gate is about latency, reuse those stored",
    )
    add_verdict(run)
    add_calibration(run)
    add_report(run, "write answers and reports to DIR; rerun with the same DIR to resume")
    add_json(run)
    add("--print-config", action="store_true", help="print the settings and where each came from")


def _add_compare(verbs: Any) -> None:
    summary = "compare two finished runs item by item, in accuracy and errors; makes no requests"
    compare = add_verb(verbs, "compare", summary, COMPARE_EPILOG)
    add = compare.add_argument
    add("dataset", type=Path, help="folder of the golden dataset both runs used")
    add(
        "--baseline",
        type=Path,
        required=True,
        metavar="DIR",
        help="--report folder of the baseline run",
    )
    add(
        "--candidate",
        type=Path,
        required=True,
        metavar="DIR",
        help="--report folder of the candidate run",
    )
    add(
        "--side",
        choices=("baseline", "candidate"),
        default="candidate",
        help="which side of each run to compare (default: candidate)",
    )
    add(
        "--gate",
        default="accuracy>=-1%",
        help="accuracy or errors; errors are always judged (default: %(default)s)",
    )
    add_damaged(compare)
    add("--allow-inconclusive", action="store_true", help="exit 0 if the result is inconclusive")
    add("--report", type=Path, metavar="DIR", help="write reports to DIR")
    add_json(compare)
    add_settings(compare, ("seed", "max_unmeasured_ratio", "dashboard_url"))


def _add_judge(verbs: Any) -> None:
    summary = "score and judge answers recorded elsewhere; makes no requests except to --judge"
    judge = add_verb(verbs, "judge", summary, JUDGE_EPILOG)
    add = judge.add_argument
    add("--dataset", type=Path, required=True, metavar="DIR", help="folder of a golden dataset")
    add(
        "--baseline", type=Path, required=True, metavar="FILE", help="answers of side A, JSON Lines"
    )
    add(
        "--candidate",
        type=Path,
        required=True,
        metavar="FILE",
        help="answers of side B, JSON Lines",
    )
    add("--gate", default="accuracy>=-1%", help="as in `eval run` (default: %(default)s)")
    add_prices(judge, "without one, cost is taken from the answer lines")
    for role in ("baseline", "candidate"):
        add(f"--{role}-model", metavar="MODEL", help=f"model of {role} lines that name none")
    add_damaged(judge)
    add_verdict(judge)
    add("--report", type=Path, metavar="DIR", help="write reports to DIR")
    add_json(judge)
    names = ("seed", "max_unmeasured_ratio", "dashboard_url", "url", "concurrency", "timeout_s")
    add_settings(judge, names)


def _add_plan(verbs: Any) -> None:
    summary = "show what each gate could detect on a dataset, before spending a token"
    plan = add_verb(verbs, "plan", summary, PLAN_EPILOG)
    plan.add_argument("dataset", type=Path, help="folder of a golden dataset")
    add_gate(plan)
    add_damaged(plan)
    add_limit(plan, "plan for N items instead of all")
    add_calibration(plan)
    add_json(plan)


def _add_calibrate(verbs: Any) -> None:
    summary = "run one side against itself to measure the noise floor and false alarms"
    calibrate = add_verb(verbs, "calibrate", summary, CALIBRATE_EPILOG)
    add = calibrate.add_argument
    add("dataset", type=Path, help="folder of a golden dataset")
    add("--side", type=Path, required=True, metavar="FILE", help="TOML file of the side")
    add_gate(calibrate)
    add_damaged(calibrate)
    add("--runs", type=at_least(1), default=2, metavar="N", help="number of runs (default: 2)")
    add(
        "--resamples",
        type=at_least(20),
        default=200,
        metavar="N",
        help="resampled runs with sides swapped at random (default: 200)",
    )
    add_limit(calibrate)
    add_asking(calibrate)
    add_report(calibrate, "write answers and calibration.json to DIR")
    add_json(calibrate)


def _add_import(verbs: Any) -> None:
    import_ = add_verb(verbs, "import", "convert another tool's file to a dataset", IMPORT_EPILOG)
    add = import_.add_argument
    add(
        "kind",
        help="promptfoo, inspect, openai, langfuse, chat, huggingface, gsm8k, csv or jsonl",
    )
    add("source", type=Path, help="file to convert")
    add("--into", type=Path, required=True, metavar="DIR", help="folder to create")
    add_limit(import_, "convert only the first N items")
    add_json(import_)
    import_.set_defaults(run=partial(run_later, "dataset", "run_import"))


def _add_lock(verbs: Any) -> None:
    summary = "give a dataset a new version, with a changelog and a hash of every item"
    lock = add_verb(verbs, "lock", summary, LOCK_EPILOG)
    lock.add_argument("dataset", type=Path, help="folder of a golden dataset")
    lock.add_argument("--note", help="what changed, for the changelog")
    lock.add_argument(
        "--check", action="store_true", help="only report what changed since the lock"
    )
    lock.set_defaults(run=partial(run_later, "dataset", "run_lock"))


def _add_stats(verbs: Any) -> None:
    summary = "compute one statistic: JSON on standard input, JSON on standard output"
    stats = add_verb(verbs, "stats", summary, STATS_EPILOG)
    stats.add_argument(
        "function", metavar="FUNCTION", help="name of the statistic, such as paired_binary"
    )
    stats.add_argument(
        "--json", action="store_true", help="accepted for consistency; the output is always JSON"
    )
    stats.set_defaults(run=_run_stats)


def _run_stats(args: argparse.Namespace) -> int:
    from evenkeel_evals.stats.functions import answer, find_function

    find_function(args.function)
    try:
        # A process started with it closed has none.
        text = "" if sys.stdin is None else sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"the input is not UTF-8: {error.reason}") from error
    print(answer(args.function, text))
    return 0


EVAL = Command(
    "eval", "compare two prompts, models or settings over a golden dataset", _configure, "evals"
)
