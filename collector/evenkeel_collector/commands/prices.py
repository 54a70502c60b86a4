"""`evenkeel prices`: check a price file, or reprice stored requests."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from evenkeel.cli import Command
from evenkeel.errors import ConfigurationError
from evenkeel.time_arguments import check_order, minute_argument

if TYPE_CHECKING:
    from evenkeel.prices.price_file import EnginePrice, ModelPrice, PriceFile

_EXAMPLES = """\
examples:
  evenkeel prices check prices.toml
  evenkeel prices reprice prices.toml --from 2026-11-01 --to 2026-11-15
  evenkeel prices reprice prices.toml --data-dir /var/lib/evenkeel

Stop the collector before you reprice. docs/guide/cost.md describes the file.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    check = verbs.add_parser("check", help="check a price file and list its prices")
    check.set_defaults(run=_run_check)
    reprice = verbs.add_parser(
        "reprice", help="reprice stored requests: all of them, or those of a period"
    )
    reprice.add_argument(
        "--from",
        dest="begin",
        type=minute_argument,
        metavar="TIME",
        help="start, such as 2026-11-01 (UTC)",
    )
    reprice.add_argument(
        "--to", dest="end", type=minute_argument, metavar="TIME", help="end, exclusive"
    )
    reprice.add_argument(
        "--data-dir", type=Path, help="the collector's data folder (default ./data)"
    )
    reprice.set_defaults(run=_run_reprice)
    for verb in (check, reprice):
        verb.add_argument("file", type=Path, metavar="FILE", help="the price file")
        verb.add_argument("--json", action="store_true", help="print one JSON object")


def _run_check(args: argparse.Namespace) -> int:
    from evenkeel.prices.price_file import read_price_file

    file = read_price_file(args.file)
    if args.json:
        print(file.model_dump_json(by_alias=True, exclude_none=True))
        return 0
    print(
        f"{args.file}: in {file.currency}; models: {len(file.model)}, engines: {len(file.engine)}"
    )
    prices: list[ModelPrice | EnginePrice] = [*file.model, *file.engine]
    for price in prices:
        print(f"  {_words(file, price)}; {price.source}, read {price.read}")
    return 0


def _words(file: PriceFile, price: ModelPrice | EnginePrice) -> str:
    from evenkeel.prices.price_file import EnginePrice

    currency = price.currency or file.currency
    if isinstance(price, EnginePrice):
        unit = "engine-hour" if price.engine_hour is not None else "GPU-hour"
        what = f"{price.hour:g} {currency} per {unit}"
        if price.measured_kwh is not None:
            what += f", {price.measured_kwh:g} per measured kWh"
        elif price.watts is not None:
            what += ", energy included"
    else:
        kinds = ("input", "cached_input", "cache_write", "output", "reasoning")
        amounts = [(kind.replace("_", " "), getattr(price, kind)) for kind in kinds]
        what = ", ".join(f"{kind} {each:g}" for kind, each in amounts if each is not None)
        what += f" {currency} per million tokens"
        missing = [kind for kind, each in amounts if each is None and kind != "reasoning"]
        if missing:
            what += f" (no cost if a request has {' or '.join(missing)} tokens)"
    ends = (("from", price.valid_from), ("until", price.valid_until))
    when = "".join(f", {word} {moment:%Y-%m-%d}" for word, moment in ends if moment)
    return f"{price.name}: {what}{when}"


def _run_reprice(args: argparse.Namespace) -> int:
    # The store's client is slow to import; --help should not wait for it.
    from evenkeel.prices.price_file import read_price_file
    from evenkeel.settings import load
    from evenkeel_collector.serve.settings import CollectorSettings
    from evenkeel_collector.store.data_folder import ID_FILE, hold
    from evenkeel_collector.store.storage import open_embedded, open_server

    file, condition = read_price_file(args.file), _condition(args.begin, args.end)
    settings = load(CollectorSettings, {"data_dir": args.data_dir}).settings
    if not (settings.data_dir / ID_FILE).exists():
        raise ConfigurationError(f"{settings.data_dir} (--data-dir) is not a collector's folder")
    folder = hold(settings.data_dir)
    try:
        if settings.clickhouse is None:
            storage = open_embedded(folder.store, folder.log)
        else:
            url = settings.clickhouse.get_secret_value()
            storage = open_server(url, settings.clickhouse_cluster, folder.log)
        try:
            num_priced = storage.prices.reprice(file, condition)
            storage.rollups.recount_costs(condition)
        finally:
            storage.close()
    finally:
        folder.release()
    if args.json:
        print(json.dumps({"num_priced": num_priced, "currency": file.currency}))
    else:
        print(f"{num_priced} requests have a cost in {file.currency}")
    return 0


def _condition(from_ns: int | None, to_ns: int | None) -> str:
    """Return the condition that selects requests of a period; `1` for all."""
    if from_ns is not None and to_ns is not None:
        check_order(from_ns, to_ns)
    parts = [
        f"time {sign} fromUnixTimestamp64Nano(toInt64({at_ns}), 'UTC')"
        for at_ns, sign in ((from_ns, ">="), (to_ns, "<"))
        if at_ns is not None
    ]
    return " AND ".join(parts) or "1"


PRICES = Command(
    name="prices",
    summary="check a price file, or reprice stored requests",
    configure=_configure,
    extra="collector",
    keeps_private=True,
)
