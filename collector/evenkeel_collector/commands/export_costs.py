"""`evenkeel export costs`: charges of a range for showback and chargeback."""

from __future__ import annotations

import argparse
import contextlib
import csv
import datetime as dt
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any

from evenkeel.errors import ConfigurationError, MissingPartError
from evenkeel.outside_text import for_spreadsheet
from evenkeel.time_arguments import check_order, minute_argument
from evenkeel.times import rfc3339
from evenkeel_collector.commands.charges import (
    NO_CHARGE,
    OVERHEAD,
    PERIODS,
    USAGE,
    charges,
    focus_row,
    plain_row,
    time_text,
)
from evenkeel_collector.commands.slo_arguments import add_store_url

if TYPE_CHECKING:
    from evenkeel_collector.commands.charges import Charge

_HERE = Path(__file__).parent
FORMATS = ("csv", "parquet", "focus")


def add_costs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    costs = verbs.add_parser(
        "costs", help="write what each tenant costs, for chargeback (docs/guide/cost.md)"
    )
    costs.add_argument(
        "--from",
        dest="begin",
        required=True,
        type=minute_argument,
        metavar="TIME",
        help="start, such as 2026-11-01 (UTC)",
    )
    costs.add_argument(
        "--to",
        dest="end",
        type=minute_argument,
        metavar="TIME",
        help="end, exclusive (default: now)",
    )
    costs.add_argument(
        "--format",
        choices=FORMATS,
        default="csv",
        help="csv, parquet, or focus: CSV with FOCUS columns (default %(default)s)",
    )
    costs.add_argument(
        "--per", choices=PERIODS, default="day", help="period of a row (default %(default)s)"
    )
    costs.add_argument(
        "--out", type=Path, metavar="FILE", help="file to write (default: standard output)"
    )
    add_store_url(costs)
    costs.add_argument("--json", action="store_true", help="print the sums as JSON; needs --out")
    costs.set_defaults(run=run_costs)


def run_costs(args: argparse.Namespace) -> int:
    """Write the charges of a range."""
    if args.out is None and (args.json or args.format == "parquet"):
        flag = "--json" if args.json else "--format parquet"
        raise ConfigurationError(f"{flag} needs --out FILE")
    _check_ending(args.out, args.format)
    from_ns = args.begin
    to_ns = time_ns() if args.end is None else args.end
    check_order(from_ns, to_ns)
    found = _read(args, from_ns, to_ns)
    row_of = focus_row if args.format == "focus" else plain_row
    write_rows(args, [row_of(each) for each in found], row_of(NO_CHARGE))
    if args.out is not None:
        say(args, found, from_ns, to_ns)
    return 0


def _check_ending(out: Path | None, format_: str) -> None:
    """Refuse a file whose ending names another format than is written.

    Raises:
        ConfigurationError: If it does.
    """
    ending = "" if out is None else out.suffix.lower()
    if ending == ".parquet" and format_ != "parquet":
        raise ConfigurationError(
            f"--out is {out}, but --format {format_} writes CSV; use --format parquet"
        )
    if ending == ".csv" and format_ == "parquet":
        raise ConfigurationError(f"--out is {out}, but --format parquet writes no CSV")


def _read(args: argparse.Namespace, from_ns: int, to_ns: int) -> list[Charge]:
    from evenkeel.prices.engine_time import engine_times, in_periods
    from evenkeel.prices.stored import ENGINE_SECONDS, PRICES_IN_FORCE, prices_of
    from evenkeel.store import Store

    span = {"from_ms": from_ns // 10**6, "to_ms": to_ns // 10**6, "per": args.per}
    store = Store(args.url)
    try:
        prices = prices_of(store.rows(PRICES_IN_FORCE))
        rows = store.rows(_HERE / "export_costs.sql", span)
        hours = store.rows(ENGINE_SECONDS, {**span, "model": ""})
    finally:
        store.close()
    times = in_periods(engine_times(hours, prices), args.per)
    return charges(rows, times, prices, args.per)


def write_rows(
    args: argparse.Namespace, rows: Sequence[Mapping[str, Any]], like: Mapping[str, Any]
) -> None:
    """Write the rows to `--out`, else to standard output, as `--format` says.

    Args:
        args: Of the command.
        rows: What to write; may be empty.
        like: A row with every column, and in each a value of its type.

    Raises:
        ConfigurationError: If the file cannot be written.
    """
    try:
        if args.format == "parquet":
            _write_parquet(args.out, rows, like)
            return
        with contextlib.ExitStack() as stack:
            out: io.TextIOBase | Any = sys.stdout
            if args.out is not None:
                out = stack.enter_context(args.out.open("w", encoding="utf-8", newline=""))
            writer = csv.DictWriter(out, list(like), lineterminator="\n")
            writer.writeheader()
            writer.writerows(
                {name: for_spreadsheet(_in_csv(value)) for name, value in row.items()}
                for row in rows
            )
    except OSError as error:
        if args.out is None:
            raise
        raise ConfigurationError(f"cannot write {args.out} (--out): {error.strerror}") from error


def _in_csv(value: object) -> object:
    return time_text(value) if isinstance(value, dt.datetime) else value


def _write_parquet(path: Path, rows: Sequence[Mapping[str, Any]], like: Mapping[str, Any]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingPartError(
            "--format parquet needs the module 'pyarrow'; install it with: pip install pyarrow"
        ) from error
    types = {
        str: pyarrow.string(),
        float: pyarrow.float64(),
        dt.datetime: pyarrow.timestamp("us", "UTC"),
    }
    schema = pyarrow.schema([(name, types[type(value)]) for name, value in like.items()])
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist([dict(row) for row in rows], schema), path
    )


def say(args: argparse.Namespace, found: Sequence[Charge], from_ns: int, to_ns: int) -> None:
    """Print the sums of the charges: the costs that are known, and how many requests have one."""
    usage = [each for each in found if each.kind == USAGE]
    num_priced = sum(each.num_priced for each in found)
    # Requests that were only shed cost nothing, whatever the others did.
    is_known = bool(num_priced) or all(each.is_known for each in usage)
    usage_cost = sum(each.billed for each in usage if each.is_known) if is_known else None
    engine_cost = sum(each.billed for each in found if each.kind == OVERHEAD)
    num_requests = sum(each.num_requests for each in found)
    currency = found[0].currency if found else ""
    if args.json:
        print(json.dumps({
            "rows": len(found), "currency": currency, "usage_cost": usage_cost,
            "engine_cost": engine_cost, "num_requests": num_requests,
            "num_priced": num_priced, "from": rfc3339(from_ns), "to": rfc3339(to_ns),
        }))  # fmt: skip
        return
    if not found:
        print(f"0 rows to {args.out}: no requests and no engine time in this range")
        return
    cost = "no known cost" if usage_cost is None else f"{usage_cost:.6g} {currency}"
    print(
        f"{len(found)} rows to {args.out}: requests {cost}, other engine time {engine_cost:.6g} "
        f"{currency}; {num_requests - num_priced:.0f} of {num_requests:.0f} requests have no cost"
    )
