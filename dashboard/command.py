"""`evenkeel dashboard`: serves the Streamlit app until it is stopped."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from evenkeel.cli import Command

if TYPE_CHECKING:
    from dashboard.configuration import DashboardSettings

_EPILOG = """\
examples:
  evenkeel dashboard                                    reads the collector on this machine
  evenkeel dashboard --query-url http://clickhouse:8123 --port 8600
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("--host", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (8501)")
    parser.add_argument(
        "--query-url", metavar="URL", help="ClickHouse HTTP address to read (http://127.0.0.1:8123)"
    )
    parser.add_argument(
        "--collector-url", metavar="URL", help="the collector's API (http://127.0.0.1:4318)"
    )
    parser.add_argument(
        "--slos", type=Path, metavar="FILE", help="the SLO file, for budgets and drafts"
    )
    parser.add_argument(
        "--sign-in", choices=("none", "token", "oidc"), help="how people sign in (none)"
    )
    parser.add_argument("--users", type=Path, metavar="FILE", help="whose token each e-mail uses")
    parser.add_argument(
        "--oidc-secrets", type=Path, metavar="FILE", help="the provider, as st.login reads it"
    )
    parser.add_argument(
        "--print-config", action="store_true", help="print the settings and their source, and end"
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from dashboard.configuration import DashboardSettings
    from dashboard.server import check_files, refuse_taken_port, serve
    from evenkeel.settings import load
    from evenkeel.store import check_url

    loaded = load(DashboardSettings, vars(args))
    if args.print_config:
        print(loaded.settings.masked(loaded.describe()))
        return 0
    settings: DashboardSettings = loaded.settings
    check_url(settings.query_url)
    check_url(settings.collector_url)
    check_files(settings)
    refuse_taken_port(settings.host, settings.port)
    return serve(settings)


DASHBOARD = Command(
    name="dashboard",
    summary="look at requests, SLOs, alerts and evaluations in a browser",
    configure=_configure,
    extra="dashboard",
)
