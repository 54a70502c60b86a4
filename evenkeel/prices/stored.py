"""Prices in force, as the collector wrote them to the store's table `prices`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenkeel.prices.price_file import DEFAULT_CURRENCY, EnginePrice, ModelPrice, PriceFile
from evenkeel.store import QUERIES

PRICES_IN_FORCE = QUERIES / "prices_in_force.sql"
ENGINE_SECONDS = QUERIES / "engine_seconds.sql"

Row = Mapping[str, Any]


def prices_of(rows: Sequence[Row]) -> PriceFile:
    """Return the prices in rows of the query `prices_in_force`; empty if there are none."""
    return PriceFile(
        currency=rows[0]["currency"] if rows else DEFAULT_CURRENCY,
        model=tuple(_model_price(row) for row in rows if row["kind"] == "model"),
        engine=tuple(_engine_price(row) for row in rows if row["kind"] == "engine"),
    )


def _shared(row: Row) -> dict[str, Any]:
    names = ("name", "source", "read", "valid_from", "valid_until")
    return {name: row[name] for name in names}


def _model_price(row: Row) -> ModelPrice:
    kinds = ("input", "cached_input", "cache_write", "output", "reasoning")
    return ModelPrice(**_shared(row), **{kind: row[kind] for kind in kinds})


def _engine_price(row: Row) -> EnginePrice:
    values = {**_shared(row), "idle": row["idle"], "kwh": row["kwh"]}
    if row["devices"] == 1:
        return EnginePrice(**values, engine_hour=row["hour"])
    return EnginePrice(**values, gpu_hour=row["hour"], gpus=row["devices"])
