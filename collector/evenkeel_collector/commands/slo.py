"""`evenkeel slo`: check a file, show its alert windows, replay history, report a period."""

from __future__ import annotations

import argparse
import json
from fractions import Fraction
from pathlib import Path

from evenkeel.cli import Command
from evenkeel.errors import ConfigurationError
from evenkeel.ratios import parse_ratio
from evenkeel_collector.commands.slo_backtest import add_backtest
from evenkeel_collector.commands.slo_burned import add_burned
from evenkeel_collector.commands.slo_correct import add_correct
from evenkeel_collector.commands.slo_diff import add_diff
from evenkeel_collector.commands.slo_export import add_export
from evenkeel_collector.commands.slo_import import add_import
from evenkeel_collector.commands.slo_report import add_report, parse_period
from evenkeel_collector.commands.slo_templates import add_templates

_EXAMPLES = """\
examples:
  evenkeel slo check slos.yaml
  evenkeel slo windows --period 30d --target 0.999 --error-rates 1,0.01,0.002
  evenkeel slo backtest --slos slos.yaml --name support-ttft --events minutes.csv --json
  evenkeel slo backtest --slos draft.yaml --days 30 --incidents incidents.csv
  evenkeel slo diff slos.yaml draft.yaml --days 30
  evenkeel slo report --slos slos.yaml --month 2026-10 --html > october.html
  evenkeel slo burned --slos slos.yaml --name support-ttft --from 2026-11-20T10:00Z
  evenkeel slo correct --name support-ttft --from 2026-11-20T10:00Z --until 2026-11-20T10:30Z \\
      --reason maintenance --by ann --comment 'node drained'
  evenkeel slo templates --show chat >> slos.yaml
  evenkeel slo export --slos slos.yaml --prometheus > rules.yml
  evenkeel slo import sloth.yml > imported.yaml
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _add_check(verbs)
    _add_windows(verbs)
    add_backtest(verbs)
    add_diff(verbs)
    add_report(verbs)
    add_burned(verbs)
    add_correct(verbs)
    add_export(verbs)
    add_import(verbs)
    add_templates(verbs)


def _add_check(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    check = verbs.add_parser("check", help="validate an SLO file and show when its alerts fire")
    check.add_argument("file", type=Path, metavar="FILE", help="the SLO file")
    check.add_argument("--json", action="store_true", help="print JSON")
    check.add_argument(
        "--strict", action="store_true", help="fail if evenkeel cannot evaluate one of the SLOs"
    )
    check.set_defaults(run=_run_check)


def _add_windows(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    windows = verbs.add_parser(
        "windows", help="show burn-rate factors and detection and reset times for a target"
    )
    windows.add_argument("--period", default="30d", help="SLO period (default %(default)s)")
    windows.add_argument("--target", required=True, help="target, such as 0.999 or 99.9%%")
    windows.add_argument(
        "--error-rates",
        default="1,0.1,0.01,0.001",
        metavar="E,…",
        help="error ratios to compute detection times for (default %(default)s)",
    )
    windows.add_argument("--json", action="store_true", help="print JSON")
    windows.set_defaults(run=_run_windows)


def _run_check(args: argparse.Namespace) -> int:
    from evenkeel.slo.file.slo_file import read_slo_file
    from evenkeel_collector.commands.slo_text import check_json, check_text

    file = read_slo_file(args.file)
    if args.strict and file.foreign:
        first = file.foreign[0]
        more = len(file.foreign) - 1
        raise ConfigurationError(
            f"SLO {first.name!r} cannot be evaluated: {first.reason}"
            + (f"; nor can {more} more" if more else "")
        )
    print(json.dumps(check_json(file)) if args.json else check_text(file))
    return 0


def _run_windows(args: argparse.Namespace) -> int:
    from evenkeel.slo.burn_rates import alert_windows
    from evenkeel_collector.commands.slo_text import windows_json, windows_text

    period_s = parse_period(args.period)
    target = _parse_ratio("--target", args.target)
    if not 0 < target < 1:
        raise ConfigurationError(
            f"--target is {args.target}, expected a fraction such as 0.999, or 99.9%"
        )
    error_rates = tuple(_parse_ratio("--error-rates", e) for e in args.error_rates.split(","))
    for text, rate in zip(args.error_rates.split(","), error_rates, strict=True):
        if not 0 < rate <= 1:
            raise ConfigurationError(f"--error-rates has {text}, expected ratios up to 1")
    windows = alert_windows(period_s)
    if args.json:
        print(json.dumps({"windows": windows_json(windows, target, error_rates)}))
    else:
        print(windows_text(windows, target, error_rates))
    return 0


def _parse_ratio(flag: str, text: str) -> Fraction:
    try:
        return parse_ratio(text)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{flag} has {text!r}, expected a fraction or a percentage"
        ) from error


SLO = Command(
    name="slo",
    summary="check SLO files, replay history, report on budgets",
    configure=_configure,
    extra="collector",
)
