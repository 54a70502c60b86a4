"""Read what a replay of a range needs, as a whole or in samples, and predict a saving from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evenkeel.known_names import suggestion
from evenkeel.store import QUERIES
from evenkeel.whatif.saving import PredictedSaving, Unpredictable, predict_saving
from evenkeel.whatif.stored_work import StoredWork

# Requests that are replayed, so that an answer takes about two seconds.
MAX_REQUESTS = 20_000
# Samples of a range with more.
NUM_SAMPLES = 4
# Part of a sample in which the replay warms up.
_WARM_UP = 0.25

ReadRows = Callable[[Path, Mapping[str, Any]], list[dict[str, Any]]]


def predicted_saving(
    rows: ReadRows, tenant: str, from_ms: int, to_ms: int, model: str = ""
) -> PredictedSaving | Unpredictable:
    """Return what the engines would save in a range without a tenant from its begin on.

    Args:
        rows: Runs a query.
        tenant: The tenant; "" are requests without one.
        from_ms: Begin of the range, Unix time.
        to_ms: End of the range.
        model: The engines' model; all if empty.

    Raises:
        StoreError: If the store is unreachable or refuses a query.
    """
    ends = {"from_ms": from_ms, "to_ms": to_ms}
    (found,) = rows(QUERIES / "engine_contents.sql", {**ends, "model": model, "tenant": tenant})
    if not found["busy_s"] or not found["num_of_tenant"]:
        (names,) = rows(QUERIES / "engine_names.sql", {**ends, "tenant": tenant})
        return Unpredictable(_why_nothing(tenant, model, names))
    if found["num_sampled"]:
        return Unpredictable(
            f"{found['num_sampled']} stored requests stand for several: their senders sample"
        )
    stored = []
    for begin_ms, end_ms in samples_of(from_ms, to_ms, found["num_requests"]):
        part = {"from_ms": begin_ms, "to_ms": end_ms, "origin_ms": from_ms}
        warm_s = 0.0 if (begin_ms, end_ms) == (from_ms, to_ms) else _WARM_UP
        warm_s *= (end_ms - begin_ms) / 1000
        begin_s = (begin_ms - from_ms) / 1000
        stored.append(
            StoredWork(
                from_s=begin_s,
                begin_s=begin_s + warm_s,
                end_s=(end_ms - from_ms) / 1000,
                requests=rows(QUERIES / "engine_requests.sql", part),
                runs=rows(QUERIES / "engine_runs.sql", part),
            )
        )
    range_s = (to_ms - from_ms) / 1000
    return predict_saving(stored, tenant, found["busy_s"], range_s, model)


def _why_nothing(tenant: str, model: str, names: Mapping[str, Sequence[str]]) -> str:
    """Return why there is nothing to replay; a name that is not stored may be mistyped."""
    if not names["models"]:
        return "no steps of an engine are stored for this range"
    if model and model not in names["models"]:
        hint = suggestion(model, names["models"])
        return f"no steps of an engine with model {model!r} are stored for this range; {hint}"
    if tenant not in names["tenants"]:
        hint = suggestion(tenant, names["tenants"])
        return f"no requests of it are stored for this range{hint and '; '}{hint}"
    return "none of its requests in this range reached an engine whose steps are stored"


def samples_of(from_ms: int, to_ms: int, num_requests: int) -> list[tuple[int, int]]:
    """Return the parts of a range to read: all of it, or evenly spaced parts of equal length."""
    if num_requests <= MAX_REQUESTS:
        return [(from_ms, to_ms)]
    period_ms = (to_ms - from_ms) // NUM_SAMPLES
    length_ms = max(period_ms * MAX_REQUESTS // num_requests, 1)
    begins = (
        from_ms + place * period_ms + (period_ms - length_ms) // 2 for place in range(NUM_SAMPLES)
    )
    return [(begin, begin + length_ms) for begin in begins]
