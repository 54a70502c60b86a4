"""`evenkeel slo burned`: list the requests that spent an SLO's error budget."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenkeel.errors import ConfigurationError
from evenkeel.known_names import suggestion
from evenkeel.outside_text import for_terminal
from evenkeel.time_arguments import check_order, time_argument
from evenkeel.times import rfc3339
from evenkeel.why.causes import describe_cause
from evenkeel_collector.commands.slo_arguments import add_slo_file, add_store_url

if TYPE_CHECKING:
    from evenkeel.slo.query import CountedIndicator, Span
    from evenkeel.store import Store

_HERE = Path(__file__).parent
_SLO = _HERE.with_name("slo")
_MOST_ROWS = 10_000


def add_burned(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    burned = verbs.add_parser("burned", help="list the requests that spent an SLO's error budget")
    add_slo_file(burned)
    burned.add_argument("--name", required=True, metavar="SLO", help="the SLO")
    burned.add_argument(
        "--from",
        dest="from_",
        type=time_argument,
        metavar="TIME",
        help="start (default: an hour ago)",
    )
    burned.add_argument("--until", type=time_argument, metavar="TIME", help="end (default: now)")
    burned.add_argument(
        "--limit",
        type=int,
        default=20,
        help="number of requests, worst first (default %(default)s)",
    )
    add_store_url(burned)
    burned.add_argument("--json", action="store_true", help="print JSON")
    burned.set_defaults(run=_run_burned)


def _run_burned(args: argparse.Namespace) -> int:
    from evenkeel.slo.file.slo_file import read_slo_file
    from evenkeel.slo.groups import with_groups
    from evenkeel.slo.model import SESSIONS, Metric
    from evenkeel.slo.query import slo_parts
    from evenkeel.store import Store

    if not 1 <= args.limit <= _MOST_ROWS:
        raise ConfigurationError(f"--limit is {args.limit}, expected 1 to {_MOST_ROWS}")
    written = read_slo_file(args.slo).slos
    span = _span(args)
    store = Store(args.url)
    try:
        slos = {slo.name: slo for slo in with_groups(written, store.rows, span.to_ns)}
        if args.name not in slos:
            # None is known if all are grouped, and no group has requests.
            hint = suggestion(args.name, slos)
            raise ConfigurationError(f"{args.slo} has no SLO {args.name!r}{hint and '; '}{hint}")
        parts = slo_parts(slos[args.name])
        if slos[args.name].indicator.budget is not None:
            raise ConfigurationError(
                f"SLO {args.name!r} is a budget in money: see evenkeel export costs"
            )
        if any(part.indicator.metric is Metric.EVAL_PASS for part in parts):
            raise ConfigurationError(
                f"SLO {args.name!r} counts eval answers, not requests; list them with evenkeel eval"
            )
        if any(part.indicator.metric is Metric.FEEDBACK for part in parts):
            raise ConfigurationError(
                f"SLO {args.name!r} counts feedback, not requests; see the Evals page, or select "
                "from evenkeel.feedback"
            )
        if all(part.indicator.metric in SESSIONS for part in parts):
            _print_sessions(args, store, parts, span)
        elif not all(part.indicator.is_requests for part in parts):
            raise ConfigurationError(
                f"SLO {args.name!r} counts requests and sessions; name a member"
            )
        elif args.json:
            rows = _read(store, parts, span, args.limit)
            print(json.dumps({"slo": args.name, "requests": [_shown(row) for row in rows]}))
        else:
            print(burned_text(store, parts, span, args.limit))
    finally:
        store.close()
    return 0


def burned_text(store: Store, parts: Sequence[CountedIndicator], span: Span, limit: int) -> str:
    """Return one line per bad request, worst first, or a line saying there are none.

    Raises:
        CannotMeasureError: If the store does not answer.
    """
    from evenkeel.slo.query import event_parameters

    rows = _read(store, parts, span, limit)
    if rows:
        return "\n".join(for_terminal(_line(row)) for row in rows)
    (causes,) = store.rows(_SLO / "slo_causes.sql", event_parameters(parts, span))
    return "no bad requests" if causes["num_events"] else "no data: no requests matched"


def _read(
    store: Store, parts: Sequence[CountedIndicator], span: Span, limit: int
) -> list[dict[str, Any]]:
    from evenkeel.slo.query import event_parameters

    return store.rows(_HERE / "slo_burned.sql", {**event_parameters(parts, span), "limit": limit})


def _print_sessions(
    args: argparse.Namespace, store: Store, parts: Sequence[CountedIndicator], span: Span
) -> None:
    """Print the bad sessions, worst first."""
    from evenkeel.slo.query import session_parameters
    from evenkeel_collector.slo.session_evidence import EXEMPLARS, session_words

    sent = {**session_parameters(parts, span), "limit_rows": args.limit}
    found = store.rows(EXEMPLARS, sent)
    bad = [row for row in found if row["bad"]]
    if args.json:
        names = ("session_id", "tenant", "last_status", "num_requests", "num_tools", "value")
        sessions = [
            {"end": rfc3339(row["end_ns"]), **{name: row[name] for name in names}} for row in bad
        ]
        print(json.dumps({"slo": args.name, "sessions": sessions}))
    elif bad:
        for row in bad:
            tenant = f"  tenant={row['tenant']}" if row["tenant"] else ""
            line = f"{rfc3339(row['end_ns'])}  {row['session_id']}  {session_words(row)}{tenant}"
            print(for_terminal(line))
    else:
        print("no bad sessions" if found else "no data: no sessions matched")


def _span(args: argparse.Namespace) -> Span:
    from time import time_ns

    from evenkeel.slo.query import Span

    to_ns = time_ns() if args.until is None else args.until
    from_ns = to_ns - 3600 * 10**9 if args.from_ is None else args.from_
    check_order(from_ns, to_ns, "--until")
    return Span(from_ns, to_ns)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {"time": rfc3339(row["time_ns"])} | {k: v for k, v in row.items() if k != "time_ns"}


def _line(row: dict[str, Any]) -> str:
    head = f"{_shown(row)['time']}  {row['request_id'] or row['trace_id']}  {row['status']:7}"
    value = "" if row["value_s"] is None else f"{row['value_s']:.3f} s"
    facts = [
        f"{name}={row[name]}"
        for name in ("model", "tenant", "route", "prompt_version", "input_tokens")
        if row[name] not in (None, "")
    ]
    facts += [f"most time: {describe_cause(row['cause'])}"] if row["cause"] else []
    return f"{head}  {value:>10}  {', '.join(facts)}"
