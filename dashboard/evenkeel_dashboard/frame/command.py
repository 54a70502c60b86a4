"""`evenkeel dashboard`: serves the Streamlit app until it is stopped."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from evenkeel.cli import Command

if TYPE_CHECKING:
    from evenkeel_dashboard.frame.configuration import DashboardSettings

_EPILOG = """\
examples:
  evenkeel dashboard                                  # read the collector on this machine
  evenkeel dashboard --store-url http://clickhouse:8123 --port 8600
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    from evenkeel.settings_flags import add_flags
    from evenkeel_dashboard.frame.configuration import DashboardSettings

    parser.epilog = _EPILOG
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="print the effective settings and where each comes from, then exit",
    )
    add_flags(parser, DashboardSettings)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from evenkeel.errors import ConfigurationError
    from evenkeel.secret_text import hide_password
    from evenkeel.settings import load
    from evenkeel.settings_flags import read_flags
    from evenkeel.store import COLLECTOR_URL, check_url
    from evenkeel_dashboard.frame.configuration import DashboardSettings
    from evenkeel_dashboard.frame.server import check_files, refuse_taken_port, serve

    loaded = load(DashboardSettings, read_flags(DashboardSettings, args))
    if args.print_config:
        print(loaded.describe())
        return 0
    settings: DashboardSettings = loaded.settings
    check_url(settings.query_url.get_secret_value())
    check_url(settings.collector_url, "collector", COLLECTOR_URL)
    shown = hide_password(settings.collector_url)
    if shown != settings.collector_url:
        # It would be taken for a part of the host's name, and be in errors on the pages.
        raise ConfigurationError(
            f"the collector's address is {shown!r} with a user, which is not sent; "
            "set EVENKEEL_DASHBOARD_TOKEN instead"
        )
    check_files(settings)
    refuse_taken_port(settings.host, settings.port)
    return serve(settings)


DASHBOARD = Command(
    name="dashboard",
    summary="serve the dashboard: requests, SLOs, alerts and evaluations in a browser",
    configure=_configure,
    extra="dashboard",
    keeps_private=True,
)
