"""Generates a simulated fleet's requests without a model or a clock; deterministic per seed.

It models a diurnal arrival rate, models of different speed with and without speculation, tenants
of Zipf-like weight, a prompt version rolled out midway, prefix-cache hits, queues that grow with
load, clients that give up, errors and, optionally, an incident in which long prompts crowd the
batch. Requests do not compete for one engine; the incident slows all that arrive in its window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from evenkeel.request_record import RequestRecord
from evenkeel.spans import Status
from evenkeel.token_latency import Emissions, measure

BLOCK_SIZE = 1024
"""Requests generated per block; each block has its own random stream."""

BLOCK_TOKENS = 16
"""KV block size: cached tokens are whole blocks."""

MAX_OUTPUT_TOKENS = 512
_DAY_S = 86_400.0
_CURVE_POINTS = 4096

Floats = NDArray[np.float64]


class SimulatedIncident(StrEnum):
    """What goes wrong between 60% and 75% of the simulated time."""

    NONE = "none"
    LONG_PROMPTS = "long-prompts"


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What to simulate.

    Attributes:
        num_requests: How many requests arrive.
        start_ns: When the first may arrive, Unix nanoseconds.
        duration_s: The time in which all arrive, in seconds.
        seed: The same seed gives the same requests; their ids also depend on the start.
        incident: What goes wrong, if anything.
    """

    num_requests: int
    start_ns: int
    duration_s: float
    seed: int = 1
    incident: SimulatedIncident = SimulatedIncident.NONE


@dataclass(frozen=True, slots=True)
class SimulatedRequest:
    """One request: its record, its arrival time, and the random part of its ids."""

    record: RequestRecord
    arrival_ns: int
    trace_id: bytes
    span_id: bytes


@dataclass(frozen=True, slots=True)
class _Model:
    """How one model behaves: seconds per decode step, prefill tokens/s, acceptance per position."""

    name: str
    share: float
    step_s: float
    prefill_tokens_per_s: float
    acceptance: float | None
    num_drafted: int = 0


@dataclass(frozen=True, slots=True)
class _Prompt:
    """The request profile of one prompt: median tokens in and out, and cacheable tokens."""

    name: str
    share: float
    input_tokens: int
    output_tokens: int
    system_tokens: int
    slo_class: str
    route: str


_MODELS = (
    _Model("llama-3.1-8b-instruct", 0.68, 0.011, 14_000.0, acceptance=0.72, num_drafted=4),
    _Model("qwen3-32b", 0.32, 0.028, 5_500.0, acceptance=None),
)
_PROMPTS = (
    _Prompt("support-answer", 0.58, 420, 120, 256, "interactive", "/v1/chat/completions"),
    _Prompt("extract-fields", 0.27, 900, 60, 512, "interactive", "/v1/chat/completions"),
    _Prompt("summarise-contract", 0.15, 2600, 260, 128, "batch", "/v1/completions"),
)
_TENANTS = ("acme", "globex", "initech", "umbrella", "hooli", "wayne")
_LONG_PROMPT = 2
_CROWDING_TENANT = "umbrella"


def generate(plan: FleetPlan) -> Iterator[list[SimulatedRequest]]:
    """Yield the requests of the plan in order of arrival, in blocks.

    Raises:
        ValueError: If there are no requests, or the duration is zero.
    """
    if plan.num_requests < 1 or plan.duration_s <= 0:
        raise ValueError(f"{plan.num_requests} requests in {plan.duration_s} s cannot be simulated")
    arrivals_s = _arrivals_s(plan)
    for block, start in enumerate(range(0, plan.num_requests, BLOCK_SIZE)):
        yield _block(plan, block, arrivals_s[start : start + BLOCK_SIZE])


def _arrivals_s(plan: FleetPlan) -> Floats:
    """Return sorted seconds since the start: a Poisson process of diurnal rate, given its count."""
    rng = np.random.default_rng([plan.seed, 0])
    spacings = rng.standard_exponential(plan.num_requests + 1)
    uniform = np.cumsum(spacings[:-1]) / spacings.sum()
    grid_s = np.linspace(0.0, plan.duration_s, _CURVE_POINTS)
    mass = np.cumsum(_intensity(plan, grid_s))
    mass = (mass - mass[0]) / (mass[-1] - mass[0])
    arrivals_s: Floats = np.interp(uniform, mass, grid_s)
    return arrivals_s


def _intensity(plan: FleetPlan, seconds: Floats) -> Floats:
    """Return the relative arrival rate: highest at 15:00 UTC, plus 17-minute waves."""
    day_s = (plan.start_ns / 1e9 + seconds) % _DAY_S
    diurnal = 1.0 + 0.55 * np.cos(2 * np.pi * (day_s - 15 * 3600) / _DAY_S)
    waves = 1.0 + 0.12 * np.sin(2 * np.pi * day_s / 1020.0)
    intensity: Floats = diurnal * waves
    return intensity


def _crowding(plan: FleetPlan, seconds: Floats) -> Floats:
    """Return the incident's intensity, 0 to 1: a steep rise, then a slower decay."""
    if plan.incident is SimulatedIncident.NONE:
        return np.zeros_like(seconds)
    crowding: Floats = np.interp(
        seconds / plan.duration_s, [0.60, 0.63, 0.71, 0.75], [0.0, 1.0, 1.0, 0.0]
    )
    return crowding


def _ids(plan: FleetPlan, block: int) -> np.random.Generator:
    """Return a separate stream for ids: the same seed at another time must not repeat them."""
    return np.random.default_rng([plan.seed, 2, block, plan.start_ns])


def _block(plan: FleetPlan, block: int, arrivals_s: Floats) -> list[SimulatedRequest]:
    rng = np.random.default_rng([plan.seed, 1, block])
    size = len(arrivals_s)
    load = 0.45 * _intensity(plan, arrivals_s)
    crowding = _crowding(plan, arrivals_s)
    models = rng.choice(len(_MODELS), size=size, p=[m.share for m in _MODELS])
    prompts = rng.choice(len(_PROMPTS), size=size, p=[p.share for p in _PROMPTS])
    weights = 1.0 / np.arange(1, len(_TENANTS) + 1)
    tenants = rng.choice(len(_TENANTS), size=size, p=weights / weights.sum())
    is_crowding = rng.random(size) < 0.22 * crowding
    ids = _ids(plan, block).bytes(24 * size)
    requests = []
    for i in range(size):
        draw = _Draw(
            rng=rng,
            model=_MODELS[models[i]],
            prompt=_PROMPTS[_LONG_PROMPT if is_crowding[i] else prompts[i]],
            progress=float(arrivals_s[i] / plan.duration_s),
            load=float(load[i]),
            crowding=float(crowding[i]),
            is_crowding=bool(is_crowding[i]),
            tenant=_CROWDING_TENANT if is_crowding[i] else _TENANTS[tenants[i]],
            token=ids[24 * i : 24 * (i + 1)],
        )
        requests.append(
            SimulatedRequest(
                record=_record(draw),
                arrival_ns=plan.start_ns + int(arrivals_s[i] * 1e9),
                trace_id=draw.token[:16],
                span_id=draw.token[16:],
            )
        )
    return requests


@dataclass(frozen=True, slots=True)
class _Draw:
    """The properties of a request that are drawn before its tokens."""

    rng: np.random.Generator
    model: _Model
    prompt: _Prompt
    progress: float
    load: float
    crowding: float
    is_crowding: bool
    tenant: str
    token: bytes


def _record(draw: _Draw) -> RequestRecord:
    rng = draw.rng
    version = "8" if rng.random() < 0.5 * min(max(draw.progress * 4 - 1, 0.0), 1.0) else "7"
    input_tokens = _input_tokens(draw)
    record = RequestRecord(
        request_id=f"chatcmpl-{draw.token[:12].hex()}",
        model=draw.model.name,
        operation="chat" if draw.prompt.slo_class == "interactive" else "text_completion",
        tenant=draw.tenant,
        session_id=f"s-{draw.tenant}-{rng.integers(400)}",
        slo_class=draw.prompt.slo_class,
        route=draw.prompt.route,
        prompt_name=draw.prompt.name,
        prompt_version=version,
        max_tokens=MAX_OUTPUT_TOKENS,
        temperature=0.0 if draw.prompt.name == "extract-fields" else 0.7,
        input_tokens=input_tokens,
        output_tokens=0,
    )
    if rng.random() < 0.04 * draw.crowding:
        record.status, record.error_type = Status.SHED, "overloaded"
        record.e2e_s = float(rng.uniform(0.001, 0.004))
        return record
    record.queue_s = float(
        rng.exponential(0.004 / max(1.0 - draw.load, 0.05)) + rng.exponential(1.6) * draw.crowding
    )
    record.cached_tokens = _cached_tokens(rng, draw.prompt, input_tokens)
    prefill_s = (input_tokens - record.cached_tokens) / draw.model.prefill_tokens_per_s
    record.prefill_s = float(
        0.006 + prefill_s * (1.0 + draw.load + 1.5 * draw.crowding) * rng.lognormal(0.0, 0.1)
    )
    version_factor = 1.3 if version == "8" else 1.0
    num_tokens = int(rng.lognormal(np.log(draw.prompt.output_tokens * version_factor), 0.55)) + 1
    _fill_tokens(record, draw, min(num_tokens, MAX_OUTPUT_TOKENS))
    record.ledger = _ledger(record, prefill_s)
    return record


def _ledger(record: RequestRecord, own_s: float) -> dict[str, float]:
    """Return where the request's time went; `own_s` is its prompt's time on an idle engine."""
    prefill_s = record.prefill_s or 0.0
    own_s = min(own_s, prefill_s)
    seconds = {
        "ttft.queue.budget": record.queue_s or 0.0,
        "ttft.prefill.own": own_s,
        "ttft.prefill.others": prefill_s - own_s,
        "decode.decode.own": record.decode_s or 0.0,
    }
    return {cause: value for cause, value in seconds.items() if value > 0}


def _input_tokens(draw: _Draw) -> int:
    if draw.is_crowding:
        return int(draw.rng.integers(9_000, 24_000))
    return draw.prompt.system_tokens + int(
        draw.rng.lognormal(np.log(draw.prompt.input_tokens), 0.5)
    )


def _cached_tokens(rng: np.random.Generator, prompt: _Prompt, input_tokens: int) -> int:
    """Return the cached tokens in whole KV blocks: none, the system prompt, or the conversation."""
    luck = rng.random()
    found = 0.0
    if luck < 0.55:
        found = prompt.system_tokens
    elif luck < 0.85:
        found = input_tokens * rng.uniform(0.6, 0.95)
    return min(int(found) // BLOCK_TOKENS * BLOCK_TOKENS, (input_tokens - 1) // 16 * BLOCK_TOKENS)


def _fill_tokens(record: RequestRecord, draw: _Draw, num_tokens: int) -> None:
    """Emit the request's tokens, unless it fails or its client leaves, and measure it."""
    rng, model = draw.rng, draw.model
    accepted = _accepted(rng, model, num_tokens)
    cumulative = 1 + np.cumsum(1 + accepted)
    num_steps = int(np.searchsorted(cumulative, num_tokens)) + 1 if num_tokens > 1 else 0
    gaps = model.step_s * (1.0 + 0.9 * draw.load) * rng.lognormal(0.0, 0.12, num_steps)
    gaps += (rng.random(num_steps) < 0.003 + 0.06 * draw.crowding) * rng.exponential(
        0.12 + 0.2 * draw.crowding, num_steps
    )
    first_s = (record.queue_s or 0.0) + (record.prefill_s or 0.0)
    times_s = first_s + np.concatenate(([0.0], np.cumsum(gaps)))
    tokens = np.concatenate(([1], 1 + accepted[:num_steps]))
    tokens[-1] -= tokens.sum() - num_tokens
    end_s = float(times_s[-1])
    fate = rng.random()
    if fate < 0.012 + 0.10 * draw.crowding:
        record.status, record.finish_reason = Status.ABORTED, "abort"
        end_s *= float(rng.uniform(0.05, 0.95))
    elif fate < 0.016 + 0.11 * draw.crowding:
        record.status, record.error_type = Status.ERROR, "engine_error"
        end_s *= float(rng.uniform(0.0, 1.0))
    else:
        record.finish_reason = "length" if num_tokens == MAX_OUTPUT_TOKENS else "stop"
    kept = int(np.searchsorted(times_s, end_s, side="right"))
    _measure(record, times_s[:kept], tokens[:kept], end_s)
    if model.acceptance is not None:
        _count_drafts(record, accepted[: max(kept - 1, 0)], model.num_drafted)
    if record.status is Status.ABORTED:
        record.wasted_tokens = int(rng.integers(0, 3)) if kept else 0


def _accepted(rng: np.random.Generator, model: _Model, num_tokens: int) -> NDArray[np.int64]:
    """Return the accepted drafts of all verify steps that may be needed; 0 without speculation."""
    if model.acceptance is None:
        return np.zeros(num_tokens, dtype=np.int64)
    chances = model.acceptance * 0.93 ** np.arange(model.num_drafted)
    agrees = rng.random((num_tokens, model.num_drafted)) < chances
    counts: NDArray[np.int64] = np.cumprod(agrees, axis=1).sum(axis=1)
    return counts


def _count_drafts(record: RequestRecord, accepted: NDArray[np.int64], num_drafted: int) -> None:
    record.drafted_by_position = [len(accepted)] * num_drafted
    record.accepted_by_position = [int((accepted > p).sum()) for p in range(num_drafted)]
    record.drafted_tokens = sum(record.drafted_by_position)
    record.accepted_tokens = sum(record.accepted_by_position)
    if record.emission_tokens:
        record.emission_drafted = [0, *([num_drafted] * len(accepted))]
        record.emission_accepted = [0, *accepted.tolist()]


def _measure(
    record: RequestRecord, times_s: Floats, tokens: NDArray[np.int64], end_s: float
) -> None:
    """Set the latency fields from the emissions kept; phases not reached have no duration."""
    times_ns = np.round(times_s * 1e9).astype(np.int64).tolist()
    counts = tokens.tolist()
    latency = measure(0, Emissions(times_ns, counts))
    record.emission_time_s = [t / 1e9 for t in times_ns]
    record.emission_tokens = counts
    record.output_tokens = sum(counts)
    record.ttft_s, record.tpot_s = latency.ttft_s, latency.tpot_s
    record.itl_p50_s, record.itl_p99_s = latency.itl_p50_s, latency.itl_p99_s
    record.stall_s = latency.stall_s
    record.e2e_s = end_s
    queue_s = record.queue_s or 0.0
    if not times_ns:
        is_queued = end_s <= queue_s
        record.queue_s = min(queue_s, end_s)
        record.prefill_s = None if is_queued else end_s - queue_s
        record.cached_tokens = None if is_queued else record.cached_tokens
        return
    record.prefill_s = record.emission_time_s[0] - queue_s
    record.decode_s = record.emission_time_s[-1] - record.emission_time_s[0]
