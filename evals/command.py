"""`evenkeel eval`: regression and A/B runs over golden datasets, and their statistics."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from evals.production_verbs import add_production_verbs
from evenkeel.cli import Command
from evenkeel.errors import ConfigurationError

DEFAULT_GATES = "accuracy>=-1%, p95_ttft<=+5%, shift_ttft<=+3%"
GATE_HELP = (
    "how much worse B may be: accuracy, preference; shift_ or pNN_ of ttft, e2e, tpot "
    "(default: %(default)s)"
)

EPILOG = """\
examples:
  evenkeel eval run golden_datasets/support \\
      --baseline golden_datasets/support/sides/full.toml \\
      --candidate golden_datasets/support/sides/short.toml \\
      --gate 'accuracy>=-1%, p95_ttft<=+5%'
  echo '{"n11": 40, "n10": 9, "n01": 2, "n00": 5}' | evenkeel eval stats paired_binary

exit codes: 0 good, 1 regressed, 2 bad usage or configuration, 3 could not tell
"""

RUN_EPILOG = """\
example:
  evenkeel eval run golden_datasets/support \\
      --baseline golden_datasets/support/sides/full.toml \\
      --candidate golden_datasets/support/sides/short.toml \\
      --gate 'accuracy>=-1%, p95_ttft<=+5%, shift_ttft<=+3%'

exit codes: 0 better or no worse, 1 regressed, 2 bad usage or configuration, 3 could not tell
"""

COMPARE_EPILOG = """\
example:
  evenkeel eval compare golden_datasets/support \\
      --baseline build/monday --candidate build/today --gate 'accuracy>=-1%'

exit codes: 0 better or no worse, 1 regressed, 2 bad usage or another dataset, 3 could not tell
"""

PLAN_EPILOG = """\
example:
  evenkeel eval plan golden_datasets/support --gate 'accuracy>=-1%, p95_ttft<=+5%'

exit codes: 0 every gate can pass and fail, 2 bad usage, 3 a gate is refused
"""

CALIBRATE_EPILOG = """\
example:
  evenkeel eval calibrate golden_datasets/support \\
      --side golden_datasets/support/sides/full.toml --runs 3 --report build/aa
  evenkeel eval plan golden_datasets/support --calibration build/aa/calibration.json

exit codes: 0 every gate is above the noise, 2 bad usage, 3 a gate is below it, or no measurement
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

docs/statistics.md lists every function with its input, output, formula and source.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    run = verbs.add_parser(
        "run",
        help="ask two sides the same items, interleaved, and judge gates",
        epilog=RUN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_run_arguments(run)
    run.set_defaults(run=_run_comparison)
    compare = verbs.add_parser(
        "compare",
        help="two recorded runs, item by item: accuracy only, nothing is asked",
        epilog=COMPARE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_compare_arguments(compare)
    compare.set_defaults(run=_run_compare)
    plan = verbs.add_parser(
        "plan",
        help="per gate what a dataset can show, before a token is spent",
        epilog=PLAN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_plan_arguments(plan)
    plan.set_defaults(run=_run_plan)
    calibrate = verbs.add_parser(
        "calibrate",
        help="ask one side against itself: noise floor and false alarms here",
        epilog=CALIBRATE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_calibrate_arguments(calibrate)
    calibrate.set_defaults(run=_run_calibration)
    add_production_verbs(verbs)
    import_ = verbs.add_parser(
        "import",
        help="make a dataset of another tool's file",
        epilog=IMPORT_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    import_.add_argument(
        "kind", help="whose file it is: promptfoo, inspect, openai, gsm8k, csv or jsonl"
    )
    import_.add_argument("source", type=Path, help="the file")
    import_.add_argument("--into", type=Path, required=True, metavar="DIR", help="a new folder")
    import_.add_argument("--limit", type=int, metavar="N", help="take the first N")
    import_.add_argument("--json", action="store_true", help="print one JSON object")
    import_.set_defaults(run=_run_import)
    lock = verbs.add_parser(
        "lock",
        help="give a dataset a new version, with changelog and hash of every item",
        epilog=LOCK_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    lock.add_argument("dataset", type=Path, help="folder of a golden dataset")
    lock.add_argument("--note", help="what changed, for the changelog")
    lock.add_argument("--check", action="store_true", help="only say what changed since the lock")
    lock.set_defaults(run=_run_lock)
    stats = verbs.add_parser(
        "stats",
        help="one statistic: JSON on standard input, JSON on standard output",
        epilog=STATS_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    stats.add_argument("function", metavar="FUNCTION", help="its name, such as paired_binary")
    stats.add_argument("--json", action="store_true", help="the output is JSON in any case")
    stats.set_defaults(run=_run_stats)


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("dataset", type=Path, help="folder of a golden dataset")
    add("--baseline", type=Path, required=True, metavar="FILE", help="side A, a TOML file")
    add("--candidate", type=Path, required=True, metavar="FILE", help="side B, a TOML file")
    add("--gate", default=DEFAULT_GATES, help=GATE_HELP)
    add("--url", help="server of a side that names none (default: http://127.0.0.1:8000)")
    add("--prompts-dir", type=Path, metavar="DIR", help="prompt registry (default: prompts)")
    add("--limit", type=int, metavar="N", help="ask N items, spread over the dataset")
    add("--concurrency", type=int, metavar="N", help="pairs in flight at once (default: 4)")
    add("--warmup", type=int, metavar="N", help="pairs asked first and dropped")
    add("--seed", type=int, help="order of items and sides (default: 0)")
    add("--timeout-s", type=float, metavar="S", help="longest time one answer may take")
    add(
        "--cache",
        choices=("isolated", "cold", "warm", "shared"),
        default="isolated",
        help="prefix cache: each side its own (default), none, all of it, or whatever is there",
    )
    add(
        "--mode",
        choices=("fixed", "sequential", "anytime"),
        default="fixed",
        help="one look at the end (default), five looks, or as many as wanted",
    )
    add("--repeats", type=int, default=1, metavar="N", help="ask each item N times (default: 1)")
    add("--guard", action="store_true", help="ask lost items again: does one always fail now?")
    add(
        "--answer-cache",
        type=Path,
        metavar="DIR",
        help="keep answers there; without a latency gate, those kept are not asked again",
    )
    add("--judge", type=Path, metavar="FILE", help="a model that compares the answers, TOML")
    add("--store-url", metavar="URL", help="read the server's spans: latency split by cause")
    add("--otlp-endpoint", metavar="URL", help="where results go as spans, or `none`")
    add("--allow-inconclusive", action="store_true", help="exit 0 where the run cannot tell")
    _add_calibration(parser)
    add(
        "--report",
        type=Path,
        metavar="DIR",
        help="keep answers and reports there; run again with it, an interrupted run goes on",
    )
    add("--fresh", action="store_true", help="put aside a run that --report holds, and start anew")
    add("--json", action="store_true", help="print one JSON object on standard output")
    add("--print-config", action="store_true", help="show the settings and where each came from")


def _add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("dataset", type=Path, help="folder of the golden dataset that both runs asked")
    add("--baseline", type=Path, required=True, metavar="DIR", help="--report folder of a run")
    add("--candidate", type=Path, required=True, metavar="DIR", help="that of another")
    add(
        "--side",
        choices=("baseline", "candidate"),
        default="candidate",
        help="which side of each run (default: candidate)",
    )
    add("--gate", default="accuracy>=-1%", help="on accuracy (default: %(default)s)")
    add("--allow-inconclusive", action="store_true", help="exit 0 where the runs cannot tell")
    add("--report", type=Path, metavar="DIR", help="write reports there")
    add("--json", action="store_true", help="print one JSON object on standard output")


def _add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("dataset", type=Path, help="folder of a golden dataset")
    add("--gate", default=DEFAULT_GATES, help=GATE_HELP)
    add("--limit", type=int, metavar="N", help="plan for N items instead of all")
    _add_calibration(parser)
    add("--json", action="store_true", help="print one JSON object on standard output")


def _add_calibrate_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("dataset", type=Path, help="folder of a golden dataset")
    add("--side", type=Path, required=True, metavar="FILE", help="the side, a TOML file")
    add("--gate", default=DEFAULT_GATES, help=GATE_HELP)
    add("--runs", type=int, default=2, metavar="N", help="runs to make (default: 2)")
    add("--resamples", type=int, default=200, metavar="N", help="swapped runs (default: 200)")
    add("--url", help="server of a side that names none (default: http://127.0.0.1:8000)")
    add("--limit", type=int, metavar="N", help="ask N items, spread over the dataset")
    add("--concurrency", type=int, metavar="N", help="pairs in flight at once (default: 4)")
    add("--seed", type=int, help="order of items and sides (default: 0)")
    add("--timeout-s", type=float, metavar="S", help="longest time one answer may take")
    add(
        "--cache",
        choices=("isolated", "cold", "warm", "shared"),
        default="isolated",
        help="prefix cache",
    )
    add("--report", type=Path, metavar="DIR", help="keep answers and calibration.json there")
    add("--fresh", action="store_true", help="put aside runs that --report holds")
    add("--json", action="store_true", help="print one JSON object on standard output")


def _add_calibration(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="calibration.json of `eval calibrate`: measured noise in place of guesses",
    )


def _run_import(args: argparse.Namespace) -> int:
    from evals.dataset_command import run_import

    return run_import(args)


def _run_lock(args: argparse.Namespace) -> int:
    from evals.dataset_command import run_lock

    return run_lock(args)


def _run_plan(args: argparse.Namespace) -> int:
    from evals.plan_command import run

    return run(args)


def _run_calibration(args: argparse.Namespace) -> int:
    from evals.calibrate_command import run

    return run(args)


def _run_comparison(args: argparse.Namespace) -> int:
    from evals.run_command import run

    return run(args)


def _run_compare(args: argparse.Namespace) -> int:
    from evals.compare_command import run

    return run(args)


def _run_stats(args: argparse.Namespace) -> int:
    from evals.stats.functions import answer, find_function

    find_function(args.function)
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"the input is not UTF-8: {error.reason}") from error
    print(answer(args.function, text))
    return 0


EVAL = Command(
    "eval", "compare two prompts, models or settings over a golden dataset", _configure, "evals"
)
