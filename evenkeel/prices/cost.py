"""Prices a request: pure functions of its tokens, its engine-seconds and the price file."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from evenkeel.prices.price_file import EnginePrice, ModelPrice, PriceFile

MILLION = 1e6
HOUR_S = 3600.0

Price = TypeVar("Price", bound=ModelPrice | EnginePrice)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request used; None is unknown.

    Attributes:
        model: The requested model.
        input_tokens: All tokens of the prompt, cached ones and those written to a cache included.
        output_tokens: All tokens of the answer, reasoning included.
        cached_tokens: Input tokens read from a cache.
        cache_write_tokens: Input tokens written to a cache at a price of their own.
        reasoning_tokens: Output tokens spent on reasoning.
        engine_s: Seconds of the engine attributed to the request.
        num_devices: Devices of its engine; 1 if unknown.
        audio_tokens: Input and output tokens that are sound.
        energy_j: Energy of the engine's GPUs attributed to the request, in J.
    """

    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    engine_s: float | None = None
    num_devices: int = 1
    audio_tokens: int | None = None
    energy_j: float | None = None

    @property
    def has_whole_parts(self) -> bool:
        """Whether cached and reasoning tokens can be part of the input's and the output's."""
        cached = (self.cached_tokens or 0) + (self.cache_write_tokens or 0)
        return cached <= (self.input_tokens or 0) and (self.reasoning_tokens or 0) <= (
            self.output_tokens or 0
        )


def in_order(prices: Sequence[Price]) -> list[Price]:
    """Return prices as they are looked up: exact names first, then globs in the file's order."""
    return sorted(prices, key=lambda price: price.is_glob)


def price_at(prices: Sequence[Price], model: str, at: dt.datetime) -> Price | None:
    """Return the price of a model at a moment; None if there is none."""
    for price in in_order(prices):
        if price.matches(model) and price.is_valid_at(at):
            return price
    return None


def request_cost(file: PriceFile, usage: Usage, at: dt.datetime) -> float | None:
    """Return what a request costs, in the file's currency; None if a price or a count is missing.

    A model's price per token comes before an engine's price per hour.
    """
    price = price_at(file.model, usage.model, at)
    if price is not None:
        return token_cost(price, usage, file.rate(price.currency) or 0.0)
    engine = price_at(file.engine, usage.model, at)
    if engine is None or usage.engine_s is None:
        return None
    return engine_cost(file, engine, usage.engine_s, usage.energy_j, num_devices=usage.num_devices)


def engine_cost(
    file: PriceFile,
    price: EnginePrice,
    spent_s: float,
    energy_j: float | None,
    *,
    num_devices: int = 1,
) -> float | None:
    """Return what an engine's time costs, in the file's currency.

    Args:
        file: The price file.
        price: The engine's price.
        spent_s: Seconds of the whole engine.
        energy_j: Energy of its GPUs in that time, in J; None if unknown, and so is a cost with it.
        num_devices: Devices of the engine.
    """
    rent = spent_s * engine_second(file, price, num_devices)
    if not price.joule:
        return rent
    if energy_j is None:
        return None
    return rent + energy_j * price.joule * (file.rate(price.currency) or 0.0)


def token_cost(price: ModelPrice, usage: Usage, rate: float = 1.0) -> float | None:
    """Return the cost of the tokens; None if the request has tokens of a kind without a price.

    The sum of uncached input, cached input, cache writes, output and reasoning, each times its
    price per million. Sound has no price. None, too, if the parts are more than the whole: whoever
    counts cached or reasoning tokens apart from the others says less than the request used.
    """
    if usage.audio_tokens:
        return None
    if usage.input_tokens is None or usage.output_tokens is None or not usage.has_whole_parts:
        return None
    cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
    reasoning = usage.reasoning_tokens or 0
    reasoning_price = price.output if price.reasoning is None else price.reasoning
    total = 0.0
    for tokens, each in (
        (usage.input_tokens - cached - written, price.input),
        (cached, price.cached_input),
        (written, price.cache_write),
        (usage.output_tokens - reasoning, price.output),
        (reasoning, reasoning_price),
    ):
        if tokens and each is None:
            return None
        total += tokens * (each or 0.0)
    return total * rate / MILLION


def engine_second(file: PriceFile, price: EnginePrice, num_devices: int = 1) -> float:
    """Return what a second of the whole engine costs, in the file's currency, as its hour does."""
    rate = file.rate(price.currency) or 0.0
    return price.hour * devices_of(price, num_devices) * rate / HOUR_S


def devices_of(price: EnginePrice, num_devices: int) -> int:
    """Return how many devices an engine's hour is paid for."""
    if price.engine_hour is not None:
        return 1
    return num_devices if price.gpus is None else price.gpus
