"""`evenkeel slo import`: convert OpenSLO, Sloth and Pyrra files to SLO files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from evenkeel.errors import ConfigurationError


def add_import(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    verb = verbs.add_parser(
        "import",
        help="convert an OpenSLO, Sloth or Pyrra file to an SLO file",
        description="Print an SLO file. What evenkeel cannot evaluate is kept, and listed on "
        "standard error.",
    )
    verb.add_argument("file", type=Path, metavar="FILE", help="OpenSLO, Sloth or Pyrra file")
    verb.add_argument(
        "--strict", action="store_true", help="fail if evenkeel cannot evaluate one of the SLOs"
    )
    verb.set_defaults(run=_run_import)


def _run_import(args: argparse.Namespace) -> int:
    from evenkeel_collector.slo.formats.importing import imported_file

    text, notes, num_foreign = imported_file(args.file)
    if args.strict and num_foreign:
        raise ConfigurationError(f"{args.file}: {notes[-1]}")
    for note in notes:
        print(note, file=sys.stderr)
    print(text, end="")
    return 0
