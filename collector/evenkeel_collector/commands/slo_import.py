"""`evenkeel slo import`: SLO files of OpenSLO, Sloth and Pyrra as SLO documents of ours."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from evenkeel.errors import ConfigurationError


def add_import(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "import",
        help="read a file of OpenSLO, Sloth or Pyrra and print it as an SLO file",
        description="Prints an SLO file. What evenkeel cannot evaluate is kept in it and named "
        "on standard error.",
    )
    verb.add_argument("file", type=Path, metavar="FILE")
    verb.add_argument(
        "--strict", action="store_true", help="refuse SLOs that evenkeel cannot evaluate"
    )
    verb.set_defaults(run=_run_import)


def _run_import(args: argparse.Namespace) -> int:
    from evenkeel.slo.importing import imported_file

    text, notes, num_foreign = imported_file(args.file)
    if args.strict and num_foreign:
        raise ConfigurationError(f"{args.file}: {notes[-1]}")
    for note in notes:
        print(note, file=sys.stderr)
    print(text, end="")
    return 0
