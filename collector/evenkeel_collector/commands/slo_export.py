"""`evenkeel slo export`: convert an SLO file for other systems."""

from __future__ import annotations

import argparse
import re

from evenkeel.errors import ConfigurationError
from evenkeel.known_names import suggestion
from evenkeel_collector.commands.slo_arguments import add_slo_file

# As in PromQL: a quoted name within the braces is one in UTF-8, of Prometheus 3.
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_STRING = r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)"""
_MATCHER = rf"\s*(?:{_STRING}|(?:[a-zA-Z_]\w*|{_STRING})\s*(?:=~|!~|!=|=)\s*{_STRING})\s*"
_COUNTER = re.compile(
    rf"{_NAME}|(?:{_NAME}\s*)?\{{{_MATCHER}(?:,{_MATCHER})*(?:,\s*)?\}}"
    rf"|{_NAME}\s*\{{\s*\}}",
    re.ASCII,
)


def add_export(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    export = verbs.add_parser("export", help="export SLOs as Prometheus rules or OpenSLO")
    add_slo_file(export)
    export.add_argument("--name", help="export only this SLO")
    to = export.add_mutually_exclusive_group(required=True)
    to.add_argument("--prometheus", action="store_true", help="print recording and alerting rules")
    to.add_argument("--openslo", action="store_true", help="print OpenSLO v1 documents")
    export.add_argument(
        "--events",
        metavar="METRIC",
        help="use this counter of valid events instead of the collector's",
    )
    export.add_argument(
        "--bad", metavar="METRIC", help="use this counter of bad events; requires --events"
    )
    export.set_defaults(run=_run_export)


def _run_export(args: argparse.Namespace) -> int:
    from evenkeel.slo.file.slo_file import read_slo_file
    from evenkeel_collector.slo.formats.openslo import openslo_documents, openslo_file
    from evenkeel_collector.slo.formats.prometheus import EventCounters, prometheus_rules

    file = read_slo_file(args.slo)
    if args.openslo and args.name is None:
        print(openslo_file(file), end="")
        return 0
    slos = [slo for slo in file.slos if args.name in (None, slo.name)]
    if not file.slos and (args.openslo or args.name is not None or not file.rules):
        raise ConfigurationError(f"{args.slo} has no SLO that evenkeel evaluates")
    if not slos and args.name is not None:
        hint = suggestion(args.name, (slo.name for slo in file.slos))
        raise ConfigurationError(f"{args.slo} has no SLO {args.name!r}; {hint}")
    if args.openslo:
        print(openslo_documents(slos), end="")
        return 0
    if (args.events is None) != (args.bad is None):
        raise ConfigurationError("--events and --bad must be given together")
    for flag, counter in (("--events", args.events), ("--bad", args.bad)):
        if counter is not None and not _COUNTER.fullmatch(counter.strip()):
            raise ConfigurationError(
                f"{flag} is {counter!r}, expected a metric's name, or one with a selector such as "
                """'http_requests_total{job="x"}'"""
            )
    counters = EventCounters() if args.events is None else EventCounters(args.events, args.bad)
    if len(slos) > 1 and "{" in counters.events + counters.bad:
        raise ConfigurationError(
            "a metric with a selector counts a single SLO: choose it with --name"
        )
    rules = file.rules if args.name is None else ()
    print(prometheus_rules(slos, counters, rules), end="")
    return 0
