"""Arguments that several verbs of `evenkeel slo` take."""

from __future__ import annotations

import argparse
from pathlib import Path

from evenkeel.secret_text import address_argument
from evenkeel.store import DEFAULT_URL


def add_slo_file(parser: argparse.ArgumentParser) -> None:
    """Add `--slos`, which sets `slo`."""
    flags = ("--slos", "--slo")
    parser.add_argument(
        *flags, dest="slo", type=Path, required=True, metavar="FILE", help="the SLO file"
    )


def add_store_url(parser: argparse.ArgumentParser) -> None:
    """Add `--store-url`, which sets `url`."""
    parser.add_argument(
        *("--store-url", "--url"),
        dest="url",
        type=address_argument,
        default=DEFAULT_URL,
        metavar="URL",
        help="store address, or @FILE to read it from a file (default %(default)s)",
    )
