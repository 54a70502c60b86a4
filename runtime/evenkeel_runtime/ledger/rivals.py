"""Finds the concurrent requests that cost a request time, and how much each cost it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenkeel_runtime.ledger.step_cost_model import FloatArray
from evenkeel_runtime.ledger.step_costs import PricedSteps
from evenkeel_runtime.ledger.timeline import BoolArray, EngineRequest, OwnPart, Steps

# Above this many request rows, only requests that computed a prompt are considered: hundreds of
# others only decoded, at about the same cost each.
# A step that the model takes for shorter cannot be shared out: the quotient would overflow.
_LEAST_S = 1e-12
_MANY_ENTRIES = 20_000
_MAX_LARGE_PROMPTS = 32


@dataclass(frozen=True, slots=True)
class Rival:
    """Another request that the engine worked on while this one waited or ran.

    Attributes:
        number: Its number in the engine's records.
        cost_s: Its share of the steps that this request waited for or was in: what this request
            would have been spared without it, by the step-cost model.
        prefill_tokens: Prompt tokens of it computed in those steps.
        decode_tokens: Tokens of it decoded in those steps.
        request_id: Its id in the API; None if unknown.
    """

    number: int
    cost_s: float
    prefill_tokens: int
    decode_tokens: int
    request_id: str | None = None


def find_rivals(
    step_s: FloatArray,
    request: EngineRequest,
    priced: PricedSteps,
    own: OwnPart,
    max_rivals: int,
) -> tuple[Rival, ...]:
    """Return the other requests by what they cost this one, most expensive first.

    Args:
        step_s: Seconds of each step that this request waited for or was in.
        request: This request.
        priced: All steps that overlap it.
        own: Its own work in them.
        max_rivals: Maximum number of rivals to return; 0 skips the search.
    """
    steps, entries = priced.steps, priced.steps.entries
    if not max_rivals:
        return ()
    whole_s = priced.prefill_s + priced.decode_s + priced.fixed_s * own.is_scheduled
    per_part = np.divide(step_s, whole_s, out=np.zeros(len(steps)), where=whole_s > _LEAST_S)
    is_met = np.repeat(step_s > 0, steps.num_entries)
    part_s = np.repeat(per_part, steps.num_entries)
    if len(is_met) > _MANY_ENTRIES:
        is_met &= _is_of_large_prompt(steps, is_met)
        entries, part_s, is_met = entries[is_met], part_s[is_met], is_met[is_met]
    if not len(entries):
        return ()
    # Concurrent requests have close numbers, so counting is faster than sorting.
    numbers = entries["request"].astype(np.int64)
    first = int(numbers.min())
    numbers -= first
    seconds = np.bincount(numbers, priced.cost.predict_parts(entries) * part_s)
    for number in request.numbers:
        if 0 <= number - first < len(seconds):
            seconds[number - first] = 0.0
    prefill = np.bincount(numbers, entries["prefill_tokens"] * is_met)
    decode = np.bincount(numbers, entries["decode_tokens"] * is_met)
    worst = np.argsort(-seconds, kind="stable")[:max_rivals]
    return tuple(
        Rival(first + int(i), float(seconds[i]), int(prefill[i]), int(decode[i]))
        for i in worst
        if seconds[i] > 0
    )


def _is_of_large_prompt(steps: Steps, is_met: BoolArray) -> BoolArray:
    """Return a mask of the rows of the requests that computed most prompt tokens."""
    numbers = steps.entries["request"]
    prefill = steps.entries["prefill_tokens"]
    places = (prefill * is_met).nonzero()[0]
    if not len(places):
        return np.zeros(len(numbers), dtype=np.bool_)
    first = int(numbers.min())
    tokens = np.bincount(
        (numbers[places] - first).astype(np.int64),
        prefill[places],
        int(numbers.max()) - first + 1,
    )
    is_large = np.zeros(len(tokens), dtype=np.bool_)
    is_large[np.argsort(-tokens, kind="stable")[:_MAX_LARGE_PROMPTS]] = True
    is_large &= tokens > 0
    found: BoolArray = is_large[numbers - first]
    return found
