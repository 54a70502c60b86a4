"""Prices requests as they are stored, by the defaults of the columns `cost` and `currency`.

Whatever writes a request, its row is priced at the price of its time, and keeps its cost when
prices change. The rule is that of evenkeel/prices/cost.py, as one expression of constants; a cost
that the sender states is taken as it is, if the file exchanges its currency.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError

from evenkeel.errors import ConfigurationError, StoreError, first_line
from evenkeel.prices.cost import HOUR_S, MILLION, in_order
from evenkeel.prices.price_file import DEFAULT_CURRENCY, EnginePrice, ModelPrice, PriceFile
from evenkeel.request_record import REQUEST_FIELDS
from evenkeel_collector.store.migrations import Render, run_statement
from evenkeel_collector.store.sql import quote

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

# OpenInference's and OpenLLMetry's costs are in this currency.
GIVEN_CURRENCY = "USD"
PriceRow = tuple[object, ...]
COLUMNS = (
    "number", "since", "kind", "name", "currency", "valid_from", "valid_until", "input",
    "cached_input", "cache_write", "output", "reasoning", "hour", "kwh", "devices", "idle",
    "source", "read",
)  # fmt: skip


class StoredPrices:
    """The prices of one store.

    Args:
        connect: Returns a client of the store.
        render: Returns what to run instead of a statement, such as its cluster form.
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        render: Render = lambda statement: [statement],
    ) -> None:
        self._connect = connect
        self._render = render

    def reprice(self, file: PriceFile, condition: str) -> int:
        """Reprice stored requests, and price new ones alike; return how many have a cost.

        The rollups are not changed: `Rollups.recount_costs` does.

        Args:
            file: The prices.
            condition: Selects requests by `time`.

        Raises:
            ConfigurationError: If other requests have costs in another currency.
            StoreError: If the store is unreachable or refuses; repeat it.
        """
        with self._refusals():
            client = self._connect()
            try:
                check_currency(client, file, outside=condition)
                currency = f"if(isNull(cost), NULL, {quote(file.currency)})"
                for change in (f"cost = {cost_sql(file)}", f"currency = {currency}"):
                    run_statement(
                        client,
                        f"ALTER TABLE requests UPDATE {change} WHERE {condition}"
                        " SETTINGS mutations_sync = 1",
                        self._render,
                    )
                self._use(client, file)
                sql = f"SELECT count(cost) FROM requests WHERE {condition}"
                return int(client.query(sql).first_row[0])
            finally:
                client.close()

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except (ClickHouseError, OSError) as error:
            raise StoreError(f"cannot set the prices: {first_line(error)}") from error

    def use(self, file: PriceFile | None) -> bool:
        """Price every new request by this file; return whether the prices in force changed.

        None: only costs that senders state are kept.

        Raises:
            ConfigurationError: If the store has costs in another currency.
            StoreError: If the store is unreachable or refuses; retry.
        """
        with self._refusals():
            client = self._connect()
            try:
                return self._use(client, file)
            finally:
                client.close()

    def _use(self, client: Client, file: PriceFile | None) -> bool:
        number, in_force = read_prices(client)
        if file is None:
            file = PriceFile(currency=str(in_force[0][2]) if in_force else DEFAULT_CURRENCY)
        check_currency(client, file)
        for statement in default_statements(file):
            run_statement(client, statement, self._render)
        rows = price_rows(file)
        if _same(rows, in_force) or not (in_force or file.model or file.engine):
            return False
        since = datetime.now(UTC)
        client.insert(
            "prices", [[number + 1, since, *row] for row in rows], column_names=list(COLUMNS)
        )
        logger.info(
            "prices in force number=%d models=%d engines=%d currency=%s",
            number + 1, len(file.model), len(file.engine), file.currency,
        )  # fmt: skip
        return True


def read_prices(client: Client) -> tuple[int, list[PriceRow]]:
    """Return the number of the newest set of prices, and its rows without number and time."""
    rows = client.query(
        f"SELECT {', '.join(COLUMNS)} FROM prices WHERE number = (SELECT max(number) FROM prices)"
    ).result_rows
    return (int(rows[0][0]) if rows else 0), [tuple(row[2:]) for row in rows]


def _same(some: Iterable[PriceRow], others: Iterable[PriceRow]) -> bool:
    """Return whether two sets hold the same prices; the store has its own types of moments."""

    def plain(value: object) -> object:
        if isinstance(value, datetime):
            return value.replace(tzinfo=value.tzinfo or UTC).timestamp()
        return str(value) if isinstance(value, date) else value

    return {tuple(map(plain, row)) for row in some} == {tuple(map(plain, row)) for row in others}


def check_currency(client: Client, file: PriceFile, outside: str = "0") -> None:
    """Refuse a file that states the bill in another currency than stored costs.

    Args:
        client: A client of the store.
        file: The prices.
        outside: Requests that meet this condition do not count.

    Raises:
        ConfigurationError: If a stored cost is in another currency.
    """
    found = client.query(
        "SELECT currency FROM requests WHERE currency != {currency:String}"
        f" AND NOT ({outside}) LIMIT 1",
        parameters={"currency": file.currency},
    ).result_rows
    if found:
        raise ConfigurationError(
            f"the store has costs in {found[0][0]}, the price file says currency = "
            f"{file.currency!r}; keep {found[0][0]} and add [exchange.{file.currency}], or price "
            "everything again: evenkeel prices reprice"
        )


def price_rows(file: PriceFile) -> list[PriceRow]:
    """Return what the table `prices` keeps of a file, without number and time."""
    rows: list[PriceRow] = []
    for model in in_order(file.model):
        rate = file.rate(model.currency) or 0.0
        amounts = [None if each is None else each * rate for each in _amounts(model)]
        rows.append((
            "model", *_named(file, model), *amounts, None, None, None, "", model.source, model.read,
        ))  # fmt: skip
    for engine in in_order(file.engine):
        rate = file.rate(engine.currency) or 0.0
        kwh = engine.measured_kwh * rate if engine.measured_kwh is not None else None
        rows.append((
            "engine", *_named(file, engine), None, None, None, None, None,
            engine.hour * rate, kwh,
            1 if engine.engine_hour is not None else engine.gpus, engine.idle.value,
            engine.source, engine.read,
        ))  # fmt: skip
    # The bill's currency, which tenants may know: a row of its own.
    return [*rows, ("", "", file.currency, *(None,) * 10, "", "", None)]


def _named(file: PriceFile, price: ModelPrice | EnginePrice) -> tuple[object, ...]:
    return price.name, file.currency, price.valid_from, price.valid_until


def _amounts(price: ModelPrice) -> tuple[float | None, ...]:
    reasoning = price.output if price.reasoning is None else price.reasoning
    return price.input, price.cached_input, price.cache_write, price.output, reasoning


def default_statements(file: PriceFile) -> list[str]:
    """Return the statements that make new rows cost what this file says."""
    return [
        f"ALTER TABLE requests MODIFY COLUMN cost Nullable(Float64) DEFAULT {cost_sql(file)}",
        "ALTER TABLE requests MODIFY COLUMN currency LowCardinality(Nullable(String)) DEFAULT "
        f"if(isNull(cost), NULL, {quote(file.currency)})",
    ]


def cost_sql(file: PriceFile) -> str:
    """Return the cost of a row of `requests` as an expression of its columns and constants."""
    given_rate = file.rate(GIVEN_CURRENCY)
    given = "NULL" if given_rate is None else f"given_cost * {given_rate!r}"
    models, engines = in_order(file.model), in_order(file.engine)
    if not models and not engines:
        return f"CAST({given}, 'Nullable(Float64)')"
    # One that cannot be exchanged is none.
    choices = [] if given_rate is None else [f"isNotNull(given_cost), {given}"]
    number = f"({_number_of([*models, *engines])} AS price_number)"
    choices.append(f"{number} = {len(models) + len(engines) + 1}, NULL")
    if models:
        choices.append(f"price_number <= {len(models)}, {_tokens(file, models)}")
    if engines:
        choices.append(
            f"price_number > {len(models)}, {_engine(file, engines, first=len(models) + 1)}"
        )
    return f"CAST(multiIf({', '.join(choices)}, NULL), 'Nullable(Float64)')"


def _number_of(prices: Iterable[ModelPrice | EnginePrice]) -> str:
    """Return the place of a row's price, from 1; one more than there are if it has none."""
    conditions = [_condition(price) for price in prices]
    pairs = ", ".join(f"{each}, {place}" for place, each in enumerate(conditions, 1))
    return f"multiIf({pairs}, {len(conditions) + 1})"


def _condition(price: ModelPrice | EnginePrice) -> str:
    parts = [
        f"model LIKE {quote(_like(price.name))}"
        if price.is_glob
        else (f"model = {quote(price.name)}")
    ]
    # Whole nanoseconds: the engine would parse a moment anew at each insert.
    stamp = "toUnixTimestamp64Nano(time)"
    if price.valid_from is not None:
        parts.append(f"{stamp} >= {_ns(price.valid_from)}")
    if price.valid_until is not None:
        parts.append(f"{stamp} < {_ns(price.valid_until)}")
    return " AND ".join(parts)


def _like(glob: str) -> str:
    escaped = glob.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%").replace("?", "_")


def _ns(moment: datetime) -> int:
    return int(moment.timestamp()) * 10**9


def _tokens(file: PriceFile, models: list[ModelPrice]) -> str:
    rates = [file.rate(model.currency) or 0.0 for model in models]
    prices = [
        _array(
            None if each is None else each * rate / MILLION
            for each, rate in zip(column, rates, strict=True)
        )
        for column in zip(*map(_amounts, models), strict=True)
    ]
    cached = "(ifNull(cached_tokens, 0) AS price_cached)"
    written = "(ifNull(cache_write_tokens, 0) AS price_written)"
    reasoning = "(ifNull(reasoning_tokens, 0) AS price_reasoning)"
    uncached = f"(input_tokens - {cached} - {written} AS price_uncached)"
    spoken = f"(output_tokens - {reasoning} AS price_spoken)"
    tokens = ["price_uncached", "price_cached", "price_written", "price_spoken", "price_reasoning"]
    # Tokens of a kind without a price have no cost; no tokens of it cost nothing.
    total = " + ".join(
        f"if({count} = 0, 0., {count} * arrayElement({price}, price_number))"
        for count, price in zip(tokens, prices, strict=True)
    )
    # Sound has other prices. Parts that are more than the whole are counted apart by their sender:
    # see token_cost.
    return f"if(audio_tokens > 0 OR {uncached} < 0 OR {spoken} < 0, NULL, {total})"


def _engine(file: PriceFile, engines: list[EnginePrice], first: int) -> str:
    if "engine_s" not in REQUEST_FIELDS:
        return "NULL"
    place = f"price_number - {first - 1}"
    seconds = _array(
        engine.hour * (file.rate(engine.currency) or 0.0) / HOUR_S for engine in engines
    )
    fixed = ", ".join(
        str(1 if engine.engine_hour is not None else engine.gpus or 0) for engine in engines
    )
    devices = "ifNull(tensor_parallel, 1) * ifNull(pipeline_parallel, 1)"
    joules = [engine.joule * (file.rate(engine.currency) or 0.0) for engine in engines]
    energy = ""
    if any(joules) and "energy_j" in REQUEST_FIELDS:
        # Energy without a price costs nothing; an unknown one with a price is no cost at all.
        energy = (
            f" + if((arrayElement([{', '.join(map(repr, joules))}], {place}) AS price_joule) = 0,"
            " 0., energy_j * price_joule)"
        )
    return (
        f"engine_s * arrayElement({seconds}, {place})"
        f" * if((arrayElement([{fixed}], {place}) AS price_devices) > 0, price_devices, {devices})"
        f"{energy}"
    )


def _array(values: Iterable[float | None]) -> str:
    inner = ", ".join("NULL" if value is None else repr(float(value)) for value in values)
    return f"CAST([{inner}], 'Array(Nullable(Float64))')"
