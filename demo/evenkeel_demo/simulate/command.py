"""`evenkeel simulate`: sends the spans of a simulated fleet to a collector."""

from __future__ import annotations

import argparse
import math
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from evenkeel.cli import Command, duration_argument
from evenkeel.durations import format_duration
from evenkeel.errors import ConfigurationError
from evenkeel.secret_text import address_argument
from evenkeel.times import parse_time_ns, to_datetime, unix_ns

if TYPE_CHECKING:
    from evenkeel_demo.simulate.requests import FleetPlan
    from evenkeel_demo.simulate.send import Sent

DEFAULT_REQUESTS = 5_000
# All arrival times are kept in memory, 8 bytes each.
MAX_REQUESTS = 100_000_000

_EPILOG = """\
examples:
  evenkeel simulate                                      # 5,000 requests in the past hour
  evenkeel simulate --rate 20 --duration 6h --incident long-prompts
  evenkeel simulate --live --rate 5 --duration 10m       # arriving from now on, in real time
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        *("--otlp-endpoint", "--endpoint"),
        dest="endpoint",
        type=address_argument,
        metavar="URL",
        default="http://127.0.0.1:4318",
        help="OTLP/HTTP address, or @FILE to read it from a file (default %(default)s)",
    )
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "--requests", type=int, metavar="N", help="number of requests (default 5000)"
    )
    amount.add_argument("--rate", type=float, metavar="R", help="requests per second on average")
    parser.add_argument(
        "--duration",
        type=duration_argument,
        default="1h",
        help="period over which the requests are spread (default %(default)s)",
    )
    parser.add_argument(
        "--until", default="now", help="end of the time span: now (default), or ISO 8601 UTC"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="the same seed gives the same requests (default 1)"
    )
    parser.add_argument(
        "--incident",
        choices=("none", "long-prompts"),
        default="none",
        help="what goes wrong between 60%% and 75%% of the time span (default %(default)s)",
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="send requests in real time from now on, instead of in the past",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from evenkeel_demo.simulate.send import send

    plan = plan_from(args, datetime.now(tz=UTC))
    sent = send(plan, args.endpoint, is_live=args.live, shows_progress=sys.stderr.isatty())
    print(_as_json(plan, sent) if args.json else _as_text(plan, sent))
    return 0


def plan_from(args: argparse.Namespace, now: datetime) -> FleetPlan:
    """Return the simulation plan for the arguments.

    Raises:
        ConfigurationError: If a duration, time, rate or number is invalid.
    """
    from evenkeel_demo.simulate.requests import FleetPlan, SimulatedIncident

    duration_s = args.duration
    num_requests = DEFAULT_REQUESTS if args.requests is None else args.requests
    if args.rate is not None:
        if not 0 < args.rate < math.inf:
            raise ConfigurationError(
                f"--rate is {args.rate:g}, expected requests per second above 0"
            )
        num_requests = round(args.rate * duration_s)
    if num_requests < 1:
        raise ConfigurationError(
            f"nothing to simulate: {num_requests} requests in {format_duration(duration_s)}; "
            "expected at least one, see --requests and --rate"
        )
    if num_requests > MAX_REQUESTS:
        raise ConfigurationError(
            f"{num_requests} requests are too many for one run; expected at most {MAX_REQUESTS}"
        )
    if args.seed < 0:
        raise ConfigurationError(f"--seed is {args.seed}, expected 0 or more")
    if args.live and args.until != "now":
        raise ConfigurationError("--live starts now: it cannot be combined with --until")
    until_ns = unix_ns(now) if args.until == "now" else _parse_until_ns(args.until)
    lasted_ns = round(duration_s * 10**6) * 1000
    if until_ns < lasted_ns:
        raise ConfigurationError(
            f"{format_duration(duration_s)} up to {args.until} would begin before 1970, when the "
            "times of spans begin; see --duration and --until"
        )
    return FleetPlan(
        num_requests=num_requests,
        start_ns=until_ns - (0 if args.live else lasted_ns),
        duration_s=duration_s,
        seed=args.seed,
        incident=SimulatedIncident(args.incident),
    )


def _parse_until_ns(text: str) -> int:
    try:
        return parse_time_ns(text)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"--until is {text!r}, expected now or a time such as 2026-11-20T10:00:00Z"
        ) from error


def _as_json(plan: FleetPlan, sent: Sent) -> str:
    import json

    return json.dumps(
        {
            "requests": sent.num_requests,
            "spans": sent.num_spans,
            "bytes": sent.num_bytes,
            "by_status": sent.num_by_status,
            "from": _iso(plan.start_ns),
            "until": _iso(plan.start_ns + round(plan.duration_s * 10**9)),
            "seed": plan.seed,
            "incident": plan.incident.value,
            "wall_s": round(sent.wall_s, 3),
            "requests_per_s": round(sent.num_requests / sent.wall_s, 1),
        }
    )


def _as_text(plan: FleetPlan, sent: Sent) -> str:
    statuses = ", ".join(f"{count} {status}" for status, count in sent.num_by_status.items())
    return (
        f"sent {sent.num_requests} requests ({sent.num_spans} spans, "
        f"{sent.num_bytes / 1e6:.1f} MB) in {sent.wall_s:.1f} s: {statuses}\n"
        f"they arrived over {format_duration(plan.duration_s)} until "
        f"{_iso(plan.start_ns + round(plan.duration_s * 10**9))}"
    )


def _iso(time_ns: int) -> str:
    return to_datetime(time_ns).isoformat(timespec="seconds")


SIMULATE = Command(
    name="simulate",
    summary="emit the spans of a simulated fleet, without a model",
    configure=_configure,
)
