"""Reads the price file `prices.toml`; an error names the file, the line and the key."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from evenkeel.errors import ConfigurationError
from evenkeel.toml_file import line_of, read_toml_file

# Prices are finite and at least 0: free is a price, missing is none.
MAX_AMOUNT = 1e9
Amount = Annotated[float, Field(ge=0, le=MAX_AMOUNT, allow_inf_nan=False, strict=True)]
CurrencyCode = Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
DEFAULT_CURRENCY = "USD"
JOULES_PER_KWH = 3.6e6
# The store prices each row by one expression, whose size it bounds.
MAX_PRICES = 2_000
# The store's times are seconds in 32 bits; a day of each end is left for time zones.
_YEARS = range(1971, 2106)
_DATE_EXPECTED = "expected a date such as 2026-01-31, without quotes"


class IdleShare(StrEnum):
    """Who pays for the time in which your own engine computes nothing.

    Attributes:
        APART: Nobody: it is a line of its own in the bill.
        SPREAD: Every request, in proportion to its cost.
    """

    APART = "apart"
    SPREAD = "spread"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class _Sourced(_Table):
    """Where a price was read, and when.

    Attributes:
        source: An address, or any text that names a document.
        read: The day on which somebody read it there.
    """

    source: str = Field(min_length=1, max_length=2000)
    read: dt.date

    @field_validator("read", mode="before")
    @classmethod
    def _check_date(cls, value: object) -> object:
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return value
        raise ValueError(_DATE_EXPECTED)


class ExchangeRate(_Sourced):
    """What one unit of another currency costs in the file's currency."""

    rate: float = Field(gt=0, le=1e9, allow_inf_nan=False, strict=True)


class _Price(_Sourced):
    """A price for the requests of some models during some time.

    Attributes:
        name: The requested model's exact name, or a glob with `*` and `?`.
        currency: The file's currency if None.
        valid_from: First day or moment, UTC; None: always before `valid_until`.
        valid_until: First day or moment, UTC, at which it is no longer valid; None: no end.
    """

    name: str = Field(min_length=1, max_length=300)
    currency: CurrencyCode | None = None
    valid_from: dt.datetime | None = Field(None, alias="from")
    valid_until: dt.datetime | None = Field(None, alias="until")

    @field_validator("valid_from", "valid_until", mode="before")
    @classmethod
    def _to_utc(cls, value: object) -> object:
        if value is None:
            return None
        if not isinstance(value, dt.date):
            raise ValueError(_DATE_EXPECTED)
        if value.year not in _YEARS:
            raise ValueError(f"the year is not from {_YEARS[0]} to {_YEARS[-1]}")
        if isinstance(value, dt.datetime) and value.microsecond:
            raise ValueError("expected whole seconds")
        if isinstance(value, dt.datetime):
            return value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)

    @field_validator("valid_until")
    @classmethod
    def _check_order(cls, value: dt.datetime | None, info: ValidationInfo) -> dt.datetime | None:
        begin = info.data.get("valid_from")
        if value is not None and begin is not None and value <= begin:
            raise ValueError("it is not after 'from'")
        return value

    @property
    def is_glob(self) -> bool:
        """Whether the name is a pattern."""
        return "*" in self.name or "?" in self.name

    def matches(self, model: str) -> bool:
        """Return whether the price is one of this model's."""
        # Brackets are no pattern: names of models may contain them.
        return (
            fnmatchcase(model, self.name.replace("[", "[[]"))
            if self.is_glob
            else (model == self.name)
        )

    def is_valid_at(self, at: dt.datetime) -> bool:
        """Return whether the price is valid at a moment."""
        return (self.valid_from is None or at >= self.valid_from) and (
            self.valid_until is None or at < self.valid_until
        )


class ModelPrice(_Price):
    """What a million tokens of a hosted model cost; a kind without a price is None.

    Attributes:
        input: Input tokens that were not cached.
        cached_input: Input tokens read from the provider's cache.
        cache_write: Input tokens written to the provider's cache.
        output: Output tokens.
        reasoning: Output tokens spent on reasoning; None: they cost what other output costs.
    """

    input: Amount | None = None
    cached_input: Amount | None = None
    cache_write: Amount | None = None
    output: Amount | None = None
    reasoning: Amount | None = None

    @model_validator(mode="after")
    def _check_any(self) -> ModelPrice:
        if self.input is None and self.output is None:
            raise ValueError("it has no price: give 'input' and 'output', per million tokens")
        return self

    @property
    def largest(self) -> float:
        """The highest amount."""
        kinds = (self.input, self.cached_input, self.cache_write, self.output, self.reasoning)
        return max(each or 0.0 for each in kinds)


class EnginePrice(_Price):
    """What your own engine costs per hour.

    Attributes:
        engine_hour: An hour of the whole engine; or `gpu_hour`, not both.
        gpu_hour: An hour of one GPU.
        gpus: GPUs per engine; None: as each request reports (tensor times pipeline parallel).
        watts: Mean power draw, of the engine or of one GPU, whichever has the price; None: the
            energy that each request is charged with, as measured.
        kwh: A kilowatt-hour.
        idle: Who pays for idle time.
    """

    engine_hour: Amount | None = None
    gpu_hour: Amount | None = None
    gpus: int | None = Field(None, ge=1, le=100_000, strict=True)
    watts: Amount | None = None
    kwh: Amount | None = None
    idle: IdleShare = IdleShare.APART

    @model_validator(mode="after")
    def _check_price(self) -> EnginePrice:
        if (self.engine_hour is None) == (self.gpu_hour is None):
            raise ValueError("give either 'engine_hour' or 'gpu_hour'")
        if self.gpus is not None and self.gpu_hour is None:
            raise ValueError("'gpus' needs 'gpu_hour'")
        if self.watts is not None and self.kwh is None:
            raise ValueError("'watts' needs 'kwh'")
        return self

    @property
    def measured_kwh(self) -> float | None:
        """A kilowatt-hour, if energy is paid for as measured."""
        return self.kwh if self.watts is None else None

    @property
    def joule(self) -> float:
        """A joule of measured energy; 0 if it costs nothing, or is part of `hour`."""
        return (self.measured_kwh or 0.0) / JOULES_PER_KWH

    @property
    def hour(self) -> float:
        """An hour of the engine, or of one GPU, with energy of a stated power."""
        rent = self.engine_hour if self.engine_hour is not None else self.gpu_hour
        return (rent or 0.0) + (self.watts or 0.0) / 1000 * (self.kwh or 0.0)

    @property
    def largest(self) -> float:
        """The highest amount."""
        return max(self.hour, self.measured_kwh or 0.0)


class PriceFile(_Table):
    """The content of a price file.

    Attributes:
        currency: The currency of the bill: every cost is in it.
        exchange: Other currencies in which prices are stated.
        model: Prices of hosted models.
        engine: Prices of your own engines.
    """

    currency: CurrencyCode = DEFAULT_CURRENCY
    exchange: Mapping[CurrencyCode, ExchangeRate] = Field(default_factory=dict)
    model: tuple[ModelPrice, ...] = ()
    engine: tuple[EnginePrice, ...] = ()

    def rate(self, currency: str | None) -> float | None:
        """Return what a unit of a currency costs in the bill's; None if the file does not say."""
        if currency is None or currency == self.currency:
            return 1.0
        found = self.exchange.get(currency)
        return found.rate if found else None


def read_price_file(path: Path, flag: str = "") -> PriceFile:
    """Return the content of a price file.

    Args:
        path: The file.
        flag: The flag that names the file, for messages.

    Raises:
        ConfigurationError: If it cannot be read, has too many prices, a key is unknown, missing or
            wrong, two prices of one name are valid at the same time, a currency has no exchange
            rate or one too many, or a price is too high in the bill's currency.
    """
    file = read_toml_file(path, PriceFile, flag)
    num_prices = len(file.model) + len(file.engine)
    if num_prices > MAX_PRICES:
        named = f" ({flag})" if flag else ""
        raise ConfigurationError(
            f"{path}{named}: {num_prices:,} prices, at most {MAX_PRICES:,}: one with * or ? in its "
            "name is enough for many models"
        )
    if file.currency in file.exchange:
        text = f"{file.currency} is the bill's currency and has no exchange rate"
        raise _error(path, flag, ("exchange", file.currency), text)
    by_kind: dict[str, Sequence[ModelPrice | EnginePrice]] = {
        "model": file.model,
        "engine": file.engine,
    }
    for kind, prices in by_kind.items():
        problem = _problem(file, prices)
        if problem is not None:
            index, text = problem
            raise _error(path, flag, (kind, index), text)
    return file


def _error(path: Path, flag: str, at: Sequence[str | int], text: str) -> ConfigurationError:
    line = line_of(path.read_text(encoding="utf-8-sig"), at)
    return ConfigurationError(f"{path}:{line}{f' ({flag})' if flag else ''}: {text}")


def _problem(file: PriceFile, prices: Sequence[ModelPrice | EnginePrice]) -> tuple[int, str] | None:
    for index, price in enumerate(prices):
        rate = file.rate(price.currency)
        if rate is None:
            return index, (
                f"the price of {price.name!r} is in {price.currency}, the bill in {file.currency}; "
                f"add [exchange.{price.currency}] with rate, source and read"
            )
        if price.largest * rate > MAX_AMOUNT:
            return index, (
                f"the price of {price.name!r} is {price.largest * rate:.6g} {file.currency}, "
                f"expected at most {MAX_AMOUNT:.0e}"
            )
        for other in prices[:index]:
            if other.name == price.name and _overlap(other, price):
                return index, (
                    f"two prices of {price.name!r} are valid at the same time; "
                    "end the earlier one with 'until'"
                )
    return None


def _overlap(one: _Price, two: _Price) -> bool:
    def begins_before_end(a: _Price, b: _Price) -> bool:
        return a.valid_from is None or b.valid_until is None or a.valid_from < b.valid_until

    return begins_before_end(one, two) and begins_before_end(two, one)
