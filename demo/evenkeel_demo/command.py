"""The arguments of `evenkeel demo`."""

from __future__ import annotations

import argparse
from pathlib import Path

from evenkeel.cli import Command, duration_argument

EXAMPLE = """\
examples:
  evenkeel demo                                     until Ctrl-C, with the dashboard
  evenkeel demo --exit-after 90s --no-dashboard --json
  evenkeel demo --port-offset 1000                  next to another demo

All hooks are enabled. After a healthy phase, a crowd of long prompts delays the chats: the TTFT SLO
burns its budget and an alert fires. The crowd returns while control acts. Then many clients ask the
same questions, which the response cache answers, and an A/B run compares two prompt versions.
exit codes: 0 success, 2 a port, folder or part is unavailable, 3 nothing could be measured
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    parser.add_argument(
        "--exit-after",
        type=duration_argument,
        metavar="TIME",
        help="stop with a report after this much traffic, such as 90s (default: until Ctrl-C)",
    )
    parser.add_argument("--no-dashboard", action="store_true", help="do not start the dashboard")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default: loopback)")
    parser.add_argument(
        "--port-offset", type=int, default=0, metavar="N", help="add N to all five ports"
    )
    parser.add_argument(
        "--data-dir", type=Path, default=None, help="where to keep the data (default: a new folder)"
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from evenkeel_demo.stage import Options, perform

    return perform(
        Options(
            host=args.host,
            port_offset=args.port_offset,
            exit_after_s=args.exit_after,
            has_dashboard=not args.no_dashboard,
            is_json=args.json,
            data_dir=args.data_dir,
        )
    )


DEMO = Command(
    "demo",
    "run the whole platform on this machine with live traffic",
    _configure,
    keeps_private=True,
)
