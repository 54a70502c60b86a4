"""What an engine has recorded of each request, and what the request has cost it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evenkeel_runtime.ledger.engine_seconds import EngineSeconds, prefill_seconds, share_steps
from evenkeel_runtime.ledger.step_cost_model import FloatArray, StepCost
from evenkeel_runtime.ledger.timeline import Steps, is_one_of
from evenkeel_runtime.wire.drafts import NO_TENANT
from evenkeel_runtime.wire.steps import Admitted


@dataclass(slots=True)
class EngineRecord:
    """The engine's records of one request, and its parts of the steps so far, in seconds.

    Attributes:
        number: Its number in the engine.
        request_id: vLLM's internal id.
        queued_ns: When it entered the scheduler's queue.
        prompt_tokens: Length of its prompt.
        tenant: Its tenant; empty without one.
        admitted: Its admission; None before it was scheduled.
        left_ns: When the scheduler released it; None until recorded.
        has_lost_steps: Whether records were lost while it was in the engine.
        spent_s: As in `EngineSeconds`, like those that follow.
        energy_j: None if that of one of its steps is unknown.
    """

    number: int
    request_id: str
    queued_ns: int
    prompt_tokens: int
    tenant: str = ""
    admitted: Admitted | None = None
    left_ns: int | None = None
    has_lost_steps: bool = False
    spent_s: float = 0.0
    wasted_s: float = 0.0
    saved_by_drafts_s: float = 0.0
    energy_j: float | None = 0.0


def charge_requests(
    steps: Steps,
    cost: StepCost,
    known: Mapping[int, EngineRecord],
    used_j: FloatArray | None = None,
) -> tuple[float, float]:
    """Share out steps among their requests; return the seconds and the energy of known ones.

    To be called once per step, with the model of that moment: so the shares of a step add up,
    whenever its requests end.

    Args:
        steps: The steps.
        cost: The step-cost model.
        known: The requests by number.
        used_j: Energy of each step in J, shared out like its seconds; None if unknown.
    """
    numbers, place = np.unique(steps.entries["request"], return_inverse=True)
    found = [_charged(known.get(number)) for number in numbers.tolist()]
    shares = share_steps(steps, cost)
    watts = np.zeros(len(steps))
    if used_j is not None:
        watts = used_j / (np.maximum(steps.end_ns - steps.begin_ns, 1) / 1e9)
    energy_j = shares.spent_s * watts[steps.rows()]
    columns = (shares.spent_s, shares.wasted_s, shares.saved_s, energy_j)
    sums = [np.bincount(place, column, len(numbers)).tolist() for column in columns]
    shared_s = shared_j = 0.0
    for record, spent, wasted, saved, energy in zip(found, *sums, strict=True):
        if record is not None:
            record.spent_s += spent
            record.wasted_s += wasted
            record.saved_by_drafts_s += saved
            if used_j is None and spent:
                record.energy_j = None
            elif record.energy_j is not None:
                record.energy_j += energy
            shared_s += spent
            shared_j += energy
    return shared_s, shared_j


def _charged(record: EngineRecord | None) -> EngineRecord | None:
    """Return the record of a request, None if its work is nobody's: our own replays."""
    return None if record is not None and record.tenant == NO_TENANT else record


def engine_seconds(
    records: Sequence[EngineRecord], late: Steps | None, cost: StepCost
) -> EngineSeconds | None:
    """Return what a request cost the engine; None if steps with it are missing or still to come.

    A client may leave during a long step, whose record comes only after its request was recorded.

    Args:
        records: The records of its sequences.
        late: The steps that ended after its client left; None if it stayed.
        cost: The step-cost model.
    """
    if any(record.has_lost_steps or record.left_ns is None for record in records):
        return None
    spent_s = sum(record.spent_s for record in records)
    wasted_s = sum(record.wasted_s for record in records)
    if late is not None:
        shares = share_steps(late, cost)
        is_own = is_one_of(late.entries["request"], tuple(record.number for record in records))
        # All of its late work is wasted, not only what is wasted in any case.
        wasted_s += float((shares.spent_s - shares.wasted_s)[is_own].sum())
    has_model = cost.error_ratio is not None
    cached = [record.admitted.cached_tokens for record in records if record.admitted is not None]
    saved_s = sum(prefill_seconds(cost, tokens) for tokens in cached)
    energies = [record.energy_j for record in records if record.energy_j is not None]
    return EngineSeconds(
        spent_s=spent_s,
        wasted_s=min(wasted_s, spent_s),
        saved_by_prefix_s=saved_s if has_model else None,
        saved_by_drafts_s=sum(r.saved_by_drafts_s for r in records) if has_model else None,
        energy_j=sum(energies) if len(energies) == len(records) else None,
    )
