"""`evenkeel export`: Grafana boards, and costs for chargeback."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from evenkeel.cli import Command
from evenkeel.errors import ConfigurationError
from evenkeel.http_address import is_http_address

_EXAMPLES = """\
examples:
  evenkeel export grafana --out boards
  evenkeel export grafana --out boards --force --dashboard-url https://evenkeel.example.com
  evenkeel export costs --from 2026-11-01 --to 2026-12-01 --out november.csv
  evenkeel export costs --from 2026-11-01 --format focus --per month --out november.focus.csv
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    # The price file's model is slow to import; other commands should not wait for it.
    from evenkeel_collector.commands.export_costs import add_costs

    parser.epilog = _EXAMPLES
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    grafana = verbs.add_parser("grafana", help="write Grafana boards (docs/guide/grafana.md)")
    grafana.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder for the boards"
    )
    grafana.add_argument(
        "--force", action="store_true", help="replace boards in a folder that is not empty"
    )
    grafana.add_argument(
        "--dashboard-url",
        default="http://127.0.0.1:8501",
        metavar="URL",
        help="evenkeel dashboard that the boards link to (default %(default)s)",
    )
    grafana.add_argument("--json", action="store_true", help="print the files as JSON")
    grafana.set_defaults(run=_run_grafana)
    add_costs(verbs)


def _run_grafana(args: argparse.Namespace) -> int:
    from evenkeel_collector.boards.catalogue import write_boards

    # The boards add paths to it.
    if not is_http_address(args.dashboard_url) or {"?", "#"} & set(args.dashboard_url):
        raise ConfigurationError(
            f"--dashboard-url is {args.dashboard_url!r}, expected one such as http://127.0.0.1:8501"
        )
    files = write_boards(args.out, args.dashboard_url, args.force)
    if args.json:
        print(json.dumps({"boards": [str(file) for file in files]}))
    else:
        print("\n".join(str(file) for file in files))
    return 0


EXPORT = Command(
    name="export",
    summary="write Grafana boards, or costs for chargeback",
    configure=_configure,
    extra="grafana",
)
