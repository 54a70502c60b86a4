"""`evenkeel whatif`: what the engines would save without a tenant."""

from __future__ import annotations

import argparse
import json
from time import time_ns
from typing import TYPE_CHECKING

from evenkeel.cli import Command
from evenkeel.errors import CannotMeasureError
from evenkeel.secret_text import address_argument
from evenkeel.time_arguments import check_order, time_argument
from evenkeel.times import rfc3339, to_datetime

if TYPE_CHECKING:
    from evenkeel.whatif.saving import PredictedSaving

EXAMPLE = """\
example:
  evenkeel whatif --without acme --from 2026-11-24T09:00 --to 2026-11-24T10:00
exit codes: 0 predicted, 2 bad usage, 3 no prediction is possible, or the store does not
  respond
"""
_STORE_URL = "http://127.0.0.1:8123"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--without",
        required=True,
        metavar="TENANT",
        help="tenant to leave out; '' for requests without one",
    )
    parser.add_argument(
        "--from",
        dest="begin",
        required=True,
        type=time_argument,
        metavar="TIME",
        help="start, such as 2026-11-24T09:00 (UTC)",
    )
    parser.add_argument(
        "--to", dest="end", type=time_argument, metavar="TIME", help="end, exclusive (default: now)"
    )
    parser.add_argument("--model", default="", metavar="NAME", help="only engines of this model")
    parser.add_argument(
        "--store-url",
        type=address_argument,
        default=_STORE_URL,
        metavar="URL",
        help="store address, or @FILE to read it from a file (default %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the prediction as JSON")
    parser.epilog = EXAMPLE
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from evenkeel.prices.engine_time import cost_of_seconds, watts_of_work
    from evenkeel.prices.stored import ENGINE_SECONDS, PRICES_IN_FORCE, prices_of
    from evenkeel.store import Store
    from evenkeel.whatif.reading import predicted_saving
    from evenkeel.whatif.saving import Unpredictable

    to_ns = time_ns() if args.end is None else args.end
    check_order(args.begin, to_ns)
    from_ms, to_ms = args.begin // 10**6, to_ns // 10**6
    store = Store(args.store_url)
    try:
        found = predicted_saving(store.rows, args.without, from_ms, to_ms, args.model)
        prices = prices_of(store.rows(PRICES_IN_FORCE))
        span = {"from_ms": from_ms, "to_ms": to_ms, "model": args.model}
        watts_of = watts_of_work(store.rows(ENGINE_SECONDS, span))
    finally:
        store.close()
    if isinstance(found, Unpredictable):
        raise CannotMeasureError(f"the saving without {args.without!r} is unknown: {found.reason}")
    cost = cost_of_seconds(found.saved_of, prices, to_datetime((to_ms - 1) * 10**6), watts_of)
    if args.json:
        print(json.dumps({
            "without": args.without, "from": rfc3339(from_ms * 10**6), "to": rfc3339(to_ms * 10**6),
            "saved_s": found.saved_s, "margin_s": found.margin_s, "busy_s": found.busy_s,
            "saved_cost": cost, "currency": prices.currency, "saved_by_model_s": found.saved_of,
            "replay_error_ratio": found.replay_error, "replayed_ratio": found.replayed_ratio,
            "num_requests": found.num_requests,
        }))  # fmt: skip
        return 0
    print("\n".join(_describe(args.without, found)))
    if cost is not None:
        print(f"at the engines' price: {cost:.4g} {prices.currency}")
    return 0


def _describe(tenant: str, found: PredictedSaving) -> list[str]:
    margin = "" if found.margin_s is None else f" ± {found.margin_s:.2f} s"
    share = found.saved_s / found.busy_s
    part = (
        "all"
        if found.replayed_ratio == 1
        else f"samples with {found.replayed_ratio:.1%} of the time"
    )
    nothing = "; the margin is as large, so it may be zero" if found.is_nothing_shown else ""
    return [
        f"without {tenant!r}, engines would save {found.saved_s:.2f} s{margin} of "
        f"{found.busy_s:.2f} s in steps ({share:.1%}){nothing}",
        f"replayed: {part}, {found.num_requests:,} requests; a replay of what happened is "
        f"{found.replay_error:+.1%} off the measured time",
    ]


WHATIF = Command("whatif", "predict what the engines would save without a tenant", _configure)
