"""Arguments that several verbs of `evenkeel eval` have; cheap to import."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import Any

from evenkeel.cli import duration_argument

DEFAULT_GATES = "accuracy>=-1%, p95_ttft<=+5%, shift_ttft<=+3%"


def add_verb(verbs: Any, name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
    """Add a verb whose examples are shown as they are written, and return its parser."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=summary, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    return parser


def add_gate(parser: argparse.ArgumentParser) -> None:
    """Add `--gate` with the gates that hold by default."""
    parser.add_argument(
        "--gate",
        default=DEFAULT_GATES,
        help="how much worse B may be: accuracy, preference, errors (always judged, by +1%%); "
        "shift_ or pNN_ of ttft, e2e, tpot "
        "(default: %(default)s)",
    )


def add_damaged(parser: argparse.ArgumentParser) -> None:
    """Add `--allow-damaged`."""
    parser.add_argument(
        "--allow-damaged",
        action="store_true",
        help="take the good items of a dataset with bad lines, or that is not what was locked",
    )


def add_limit(
    parser: argparse.ArgumentParser, text: str = "ask N items, spread over the dataset"
) -> None:
    """Add `--limit`."""
    parser.add_argument("--limit", type=int, metavar="N", help=text)


def add_traffic(parser: argparse.ArgumentParser) -> None:
    """Add `--traffic` and `--since`: recorded requests instead of a dataset."""
    parser.add_argument(
        "--traffic",
        metavar="FILE_OR_URL",
        help="ask recorded requests instead: JSON lines, or a store such as http://127.0.0.1:8123; "
        "--limit of them (default: 300), drawn by --seed",
    )
    parser.add_argument(
        "--since",
        type=duration_argument,
        default=3600.0,
        metavar="DURATION",
        help="with --traffic URL: recorded since then (default: 1h)",
    )


def add_asking(parser: argparse.ArgumentParser) -> None:
    """Add what says whom to ask, and how: settings, and the prefix cache."""
    add_settings(parser)
    parser.add_argument(
        "--cache",
        choices=("isolated", "cold", "warm", "shared"),
        default="isolated",
        help="prefix cache: each side its own (default), none, all of it, or whatever is there",
    )


def add_settings(parser: argparse.ArgumentParser, names: Collection[str] | None = None) -> None:
    """Add the flags of the settings, or of those of them that a verb reads."""
    from evenkeel.settings_flags import add_flags
    from evenkeel_evals.ask.settings import EvalSettings

    add_flags(parser, EvalSettings, names)


def add_calibration(parser: argparse.ArgumentParser) -> None:
    """Add `--calibration`."""
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="calibration.json of `eval calibrate`: measured noise in place of guesses",
    )


def add_report(parser: argparse.ArgumentParser, text: str) -> None:
    """Add `--report` and `--fresh`."""
    parser.add_argument("--report", type=Path, metavar="DIR", help=text)
    parser.add_argument(
        "--fresh", action="store_true", help="put aside what --report holds, and start anew"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
