"""Arguments shared by several verbs of `evenkeel eval`; cheap to import."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from evenkeel.cli import duration_argument

DEFAULT_GATES = "accuracy>=-1%, p95_ttft<=+5%, shift_ttft<=+3%"


def add_verb(verbs: Any, name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
    """Add a verb and return its parser; the verb lazily imports its module and calls `run`."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=summary, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.set_defaults(run=partial(run_later, name, "run"))
    return parser


def run_later(module: str, function: str, args: argparse.Namespace) -> int:
    """Import a module of this package on demand, call the function and return its exit code."""
    code: int = getattr(import_module(f"evenkeel_evals.commands.{module}"), function)(args)
    return code


def at_least(least: int) -> Callable[[str], int]:
    """Return a reader of whole numbers of this or more: a `type=` for argparse."""

    def read(text: str) -> int:
        with suppress(ValueError):
            if (number := int(text)) >= least:
                return number
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number of {least} or more")

    return read


def add_gate(parser: argparse.ArgumentParser) -> None:
    """Add `--gate` with the default gates."""
    parser.add_argument(
        "--gate",
        default=DEFAULT_GATES,
        help="how much worse the candidate may be: accuracy, preference, errors (always judged, "
        "+1%% unless given), cost, shift_ or pNN_ followed by ttft, e2e or tpot (default: "
        "%(default)s)",
    )


def add_prices(parser: argparse.ArgumentParser, text: str) -> None:
    """Add `--prices`."""
    parser.add_argument(
        "--prices", type=Path, metavar="FILE", help=f"price file for a gate on cost; {text}"
    )


def add_damaged(parser: argparse.ArgumentParser) -> None:
    """Add `--allow-damaged`."""
    parser.add_argument(
        "--allow-damaged",
        action="store_true",
        help="accept a dataset with unreadable lines (skipped) or that differs from its lock",
    )


def add_limit(
    parser: argparse.ArgumentParser, text: str = "ask only N items, spread over the dataset"
) -> None:
    """Add `--limit`."""
    parser.add_argument("--limit", type=at_least(1), metavar="N", help=text)


def add_traffic(parser: argparse.ArgumentParser) -> None:
    """Add `--traffic` and `--since`: recorded requests instead of a dataset."""
    parser.add_argument(
        "--traffic",
        metavar="FILE_OR_URL",
        help="ask recorded requests instead of a dataset: a JSON Lines file, or a store such as "
        "http://127.0.0.1:8123; draws --limit of them (default: 300), using --seed",
    )
    add_since(parser, 3600.0, "with --traffic URL: how far back to look (default: 1h)")


def add_since(parser: argparse.ArgumentParser, default_s: float, text: str) -> None:
    """Add `--since`."""
    parser.add_argument(
        "--since", type=duration_argument, default=default_s, metavar="DURATION", help=text
    )


def add_repeats(parser: argparse.ArgumentParser, text: str) -> None:
    """Add `--repeats`."""
    parser.add_argument("--repeats", type=at_least(1), default=1, metavar="N", help=text)


def add_verdict(parser: argparse.ArgumentParser) -> None:
    """Add `--judge`, `--allow-python` and `--allow-inconclusive`: what the verdict rests on."""
    add = parser.add_argument
    judge = "TOML file of the judge model, for rubrics and preference"
    add("--judge", type=Path, metavar="FILE", help=judge)
    add("--allow-python", action="store_true", help="run the dataset's Python assertions")
    add("--allow-inconclusive", action="store_true", help="exit 0 if the result is inconclusive")


def add_asking(parser: argparse.ArgumentParser) -> None:
    """Add the run settings and `--cache`."""
    add_settings(parser)
    parser.add_argument(
        "--cache",
        choices=("isolated", "cold", "warm", "shared"),
        default="isolated",
        help="prefix cache: isolated, one per side and repeat (default); cold, none; warm, filled "
        "before each request; shared, as it is",
    )


def add_settings(parser: argparse.ArgumentParser, names: Collection[str] | None = None) -> None:
    """Add a flag per setting, or only for the named ones."""
    from evenkeel.settings_flags import add_flags
    from evenkeel_evals.ask.settings import EvalSettings

    add_flags(parser, EvalSettings, names)


def add_calibration(parser: argparse.ArgumentParser) -> None:
    """Add `--calibration`."""
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="calibration.json from `eval calibrate`: use measured noise instead of assumptions",
    )


def add_report(parser: argparse.ArgumentParser, text: str) -> None:
    """Add `--report` and `--fresh`."""
    parser.add_argument("--report", type=Path, metavar="DIR", help=text)
    parser.add_argument(
        "--fresh", action="store_true", help="move the contents of --report aside and start over"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
