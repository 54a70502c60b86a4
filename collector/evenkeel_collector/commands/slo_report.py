"""`evenkeel slo report`: report on each SLO over a month or a period."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from evenkeel.errors import ConfigurationError
from evenkeel.times import to_datetime, unix_ns
from evenkeel_collector.commands.slo_arguments import add_slo_file, add_store_url
from evenkeel_collector.commands.slo_correct import read_corrections

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from evenkeel.slo.query import Span

_LAST = "last"


def add_report(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    report = verbs.add_parser("report", help="report on each SLO in Markdown, HTML or JSON")
    add_slo_file(report)
    span = report.add_mutually_exclusive_group()
    span.add_argument("--period", default="30d", help="period up to now (default %(default)s)")
    span.add_argument(
        "--month",
        nargs="?",
        const=_LAST,
        metavar="YYYY-MM",
        help="a calendar month (default: the last complete one)",
    )
    report.add_argument(
        "--time-zone",
        default="UTC",
        metavar="ZONE",
        help="time zone for days and months (default UTC)",
    )
    add_store_url(report)
    report.add_argument(
        "--data-dir",
        type=Path,
        help="the collector's data folder, to apply its corrections (also EVENKEEL_DATA_DIR)",
    )
    form = report.add_mutually_exclusive_group()
    form.add_argument("--html", action="store_true", help="print an HTML page instead of Markdown")
    form.add_argument("--json", action="store_true", help="print JSON")
    report.set_defaults(run=_run_report)


def _run_report(args: argparse.Namespace) -> int:
    from time import time_ns

    from evenkeel.slo.file.slo_file import read_slo_file
    from evenkeel.slo.groups import with_groups
    from evenkeel.slo.query import Span
    from evenkeel.store import Store
    from evenkeel_collector.slo.report import measure
    from evenkeel_collector.slo.report_text import report_html, report_json, report_markdown

    file = read_slo_file(args.slo)
    zone = _read_zone(args.time_zone)
    now_ns = time_ns()
    if args.month is None:
        span = Span(now_ns - int(parse_period(args.period) * 10**9), now_ns)
    else:
        span = month_span(args.month, zone, now_ns)
    store = Store(args.url)
    try:
        corrections = read_corrections(args.data_dir)
        slos = tuple(with_groups(file.slos, store.rows, span.to_ns, span.to_ns - span.from_ns))
        report = measure(store, replace(file, slos=slos), span, corrections, zone)
    finally:
        store.close()
    if args.json:
        print(json.dumps(report_json(report)))
    else:
        print(report_html(report) if args.html else report_markdown(report))
    return 0


def month_span(text: str, zone: ZoneInfo, now_ns: int) -> Span:
    """Return the span of a month such as 2026-10, or of `last` month, ending no later than now.

    Raises:
        ConfigurationError: If it is not a month, or has not begun.
    """
    from evenkeel.slo.query import Span

    now = to_datetime(now_ns, zone)
    if text == _LAST:
        year, month = (now.year, now.month - 1) if now.month > 1 else (now.year - 1, 12)
    else:
        found = re.fullmatch(r"(20\d\d)-(0[1-9]|1[0-2])", text, re.ASCII)
        if found is None:
            raise ConfigurationError(f"--month is {text!r}, expected one such as 2026-10")
        year, month = int(found[1]), int(found[2])
    begin = datetime(year, month, 1, tzinfo=zone)
    end = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=zone)
    from_ns = unix_ns(begin)
    if from_ns >= now_ns:
        raise ConfigurationError(f"--month is {text!r}, which has not begun")
    return Span(from_ns, min(unix_ns(end), now_ns))


def _read_zone(text: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(text)
    except (ValueError, OSError, KeyError) as error:
        raise ConfigurationError(
            f"--time-zone is {text!r}, expected an IANA name such as Europe/Berlin"
        ) from error


def parse_period(text: str) -> Fraction:
    """Parse `--period` into seconds.

    Raises:
        ConfigurationError: If it is not a duration.
    """
    from evenkeel.durations import parse_duration_s

    try:
        return parse_duration_s(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"--period: {error}") from error
