"""The arguments of `evenkeel demo`."""

from __future__ import annotations

import argparse
from pathlib import Path

from evenkeel.cli import Command, duration_argument
from evenkeel.errors import ConfigurationError
from evenkeel.http_address import bare_host

EXAMPLE = """\
examples:
  evenkeel demo                                   # until Ctrl-C, with the dashboard
  evenkeel demo --exit-after 90s --no-dashboard --json
  evenkeel demo --port-offset 1000                # next to another demo
  evenkeel demo --runtime-url http://127.0.0.1:8000 --data-dir DIR
                                                  # against parts that are already running

All hooks are enabled. After a healthy phase, a crowd of long prompts delays the chats: the TTFT SLO
burns its budget and an alert fires. The crowd returns while control acts. Then many clients ask the
same questions, which the response cache answers, and an A/B run compares two prompt versions.
Finally, a client cuts its answers short, and an anomaly rule alerts.
exit codes: 0 success, 2 bad usage, or a port or folder is unavailable, 3 a part does not answer or
ended, or nothing could be measured
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    from evenkeel.settings_flags import add_flags
    from evenkeel_demo.settings import DemoSettings

    parser.epilog = EXAMPLE
    parser.add_argument(
        "--exit-after",
        type=duration_argument,
        metavar="TIME",
        help="stop with a report after at least this much traffic, such as 90s (default: until "
        "Ctrl-C)",
    )
    parser.add_argument("--no-dashboard", action="store_true", help="do not start the dashboard")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    parser.add_argument(
        "--host",
        type=bare_host,
        default="127.0.0.1",
        help="address to bind (default: loopback)",
    )
    parser.add_argument(
        "--port-offset", type=int, default=0, metavar="N", help="add N to all five ports"
    )
    parser.add_argument(
        "--data-dir", type=Path, default=None, help="where to keep the data (default: a new folder)"
    )
    parser.add_argument(
        "--write-files",
        action="store_true",
        help="only write the configuration files to --data-dir, for parts that you start yourself",
    )
    add_flags(parser, DemoSettings)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from evenkeel.settings import load
    from evenkeel.settings_flags import read_flags
    from evenkeel_demo.settings import DemoSettings
    from evenkeel_demo.stage import Options, perform, write_files

    settings = load(DemoSettings, read_flags(DemoSettings, args)).settings
    if args.data_dir is None and (args.write_files or settings.runtime_url is not None):
        raise ConfigurationError(
            "give --data-dir, the folder of the files that `evenkeel demo --write-files` wrote and "
            "the parts read"
        )
    options = Options(
        host=args.host,
        port_offset=args.port_offset,
        exit_after_s=args.exit_after,
        has_dashboard=not args.no_dashboard,
        is_json=args.json,
        data_dir=args.data_dir,
        running=settings.endpoints(),
        receiver_url=settings.receiver_url,
    )
    if args.write_files:
        write_files(options)
        return 0
    return perform(options)


DEMO = Command(
    "demo",
    "run the whole platform on this machine with live traffic",
    _configure,
    keeps_private=True,
)
