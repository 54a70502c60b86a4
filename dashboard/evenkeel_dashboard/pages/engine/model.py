"""Diagnoses which resource limits an engine, with the evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel_dashboard.draw import wording
from evenkeel_dashboard.model.shift import large_sample_shift

Row = Mapping[str, Any]

# At or above this share of live KV blocks, memory limits which requests run.
FULL_KV_RATIO = 0.8
# At or above this share of time in steps, compute is nearly saturated.
BUSY_RATIO = 0.9
# Names in vLLM's metrics and our step records for a queue that waits for memory.
MEMORY_REASONS = ("kv", "capacity", "kv_cache", "preempted")
# Descriptions of our step records' reasons; vLLM's own are shown as they are.
REASONS = {
    "budget": "the step's token budget is used up (max_num_batched_tokens)",
    "kv": "no free KV blocks",
    "seats": "the maximum number of sequences is running (max_num_seqs)",
    "grammar": "a grammar is being compiled",
    "remote_kv": "its KV is being transferred from elsewhere",
}

STATE_NAMES = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_requests_waiting_by_reason",
    "vllm:kv_cache_usage_perc",
    "vllm:num_preemptions",
    "vllm:prompt_tokens",
    "vllm:generation_tokens",
    "vllm:spec_decode_num_draft_tokens",
    "vllm:spec_decode_num_accepted_tokens",
    "vllm:prefix_cache_queries",
    "vllm:prefix_cache_hits",
)
COLUMNS = (
    "num_running",
    "num_waiting",
    "batch_size",
    "step_mean_s",
    "step_longest_s",
    "busy_ratio",
    "kv_live_ratio",
    "kv_resident_ratio",
    "num_preempted",
    "prefill_tokens_per_s",
    "output_tokens_per_s",
    "acceptance_rate",
)
_GAUGES = {
    "vllm:num_requests_running": "num_running",
    "vllm:num_requests_waiting": "num_waiting",
    "vllm:kv_cache_usage_perc": "kv_live_ratio",
    "vllm:num_preemptions": "num_preempted",
}


@dataclass(frozen=True, slots=True)
class Sign:
    """One piece of evidence: what was measured, and what it suggests."""

    name: str
    value: str
    meaning: str
    suggests: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What limits the engine.

    Attributes:
        level: good, warning, bad or unknown.
        headline: The finding.
        advice: What to do.
        signs: The evidence, for and against.
    """

    level: str
    headline: str
    advice: str
    signs: Sequence[Sign]


@dataclass(frozen=True, slots=True)
class Load:
    """Input of the diagnosis: means over the range, the maximum for KV; None if not measured."""

    num_waiting: float | None
    waiting_for_memory: float | None
    kv_live_ratio: float | None
    num_preempted: float | None
    busy_ratio: float | None


def state_rows(rows: Sequence[Row], step_s: int) -> list[dict[str, Any]]:
    """Return vLLM's own gauges and counters as rows of `COLUMNS`; None if vLLM lacks the value."""
    by_bucket: dict[Any, dict[str, Any]] = {}
    sums: dict[Any, dict[str, float]] = {}
    for row in rows:
        found = by_bucket.setdefault(
            row["bucket"], {"bucket": row["bucket"], **dict.fromkeys(COLUMNS)}
        )
        name, value = row["name"], row["value"]
        if name in _GAUGES:
            found[_GAUGES[name]] = value
        elif name == "vllm:prompt_tokens":
            found["prefill_tokens_per_s"] = value / step_s
        elif name == "vllm:generation_tokens":
            found["output_tokens_per_s"] = value / step_s
        elif name.startswith("vllm:spec_decode"):
            sums.setdefault(row["bucket"], {})[name] = value
    for bucket, spec in sums.items():
        drafted = spec.get("vllm:spec_decode_num_draft_tokens", 0.0)
        accepted = spec.get("vllm:spec_decode_num_accepted_tokens", 0.0)
        by_bucket[bucket]["acceptance_rate"] = accepted / drafted if drafted > 0 else None
    return [by_bucket[bucket] for bucket in sorted(by_bucket)]


def waiting_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return waiting requests by reason from vLLM's own gauges."""
    return [
        {"bucket": row["bucket"], "reason": row["label"] or "other", "num_waiting": row["value"]}
        for row in rows
        if row["name"] == "vllm:num_requests_waiting_by_reason"
    ]


def load_of(rows: Sequence[Row], waiting: Sequence[Row]) -> Load:
    """Return the input of the diagnosis from the rows of the series."""
    held = [w["num_waiting"] for w in waiting if w["reason"] in MEMORY_REASONS]
    return Load(
        num_waiting=_mean(rows, "num_waiting"),
        waiting_for_memory=sum(held) / len(rows) if waiting and rows else None,
        kv_live_ratio=max(_present(rows, "kv_live_ratio"), default=None),
        num_preempted=sum(found) if (found := _present(rows, "num_preempted")) else None,
        busy_ratio=_mean(rows, "busy_ratio"),
    )


def diagnose(load: Load) -> Diagnosis:
    """Return whether memory or compute limits an engine (TECHNIQUES C14), and why.

    Memory: requests wait, and nearly all KV blocks are live or a request was preempted. Compute:
    requests wait while blocks are free. Neither: nothing waits, whatever else is full.
    """
    signs = _signs(load)
    if load.num_waiting is None and load.kv_live_ratio is None:
        return Diagnosis("unknown", "No engine data", "", signs)
    is_full = (load.kv_live_ratio or 0.0) >= FULL_KV_RATIO
    for_memory = is_full or bool(load.num_preempted) or (load.waiting_for_memory or 0.0) > 0.5
    waits = (load.num_waiting or 0.0) >= 0.5
    if for_memory and (waits or load.num_preempted):
        return Diagnosis(
            "bad",
            "Memory-bound: requests queued for KV blocks",
            "More KV memory lets more of them run: a quantised KV cache, shorter contexts, fewer "
            "sequences at once, or another replica. Faster compute would not help.",
            signs,
        )
    if waits:
        return Diagnosis(
            "warning",
            "Compute-bound: requests queued while KV blocks were free",
            "Add compute: larger batches while steps stay short, a smaller or "
            "quantised model, or another replica. More KV memory would not help.",
            signs,
        )
    if (load.busy_ratio or 0.0) >= BUSY_RATIO:
        return Diagnosis(
            "good",
            "Compute is nearly saturated, but nothing is queued yet",
            "More traffic will queue: add compute before it comes.",
            signs,
        )
    return Diagnosis("good", "Neither memory nor compute is a limit: nothing is queued", "", signs)


def _signs(load: Load) -> list[Sign]:
    kv = load.kv_live_ratio
    return [
        Sign(
            "requests waiting",
            wording.number(load.num_waiting),
            "average over the range; below 0.5 there is no queue",
            "saturation" if (load.num_waiting or 0.0) >= 0.5 else "",
        ),
        Sign(
            "waiting for KV blocks",
            wording.number(load.waiting_for_memory),
            "of those, waiting for memory",
            "memory" if (load.waiting_for_memory or 0.0) > 0.5 else "",
        ),
        Sign(
            "KV blocks in use",
            wording.percent(kv),
            f"highest in the range; from {wording.percent(FULL_KV_RATIO)} on it is full",
            "memory" if kv is not None and kv >= FULL_KV_RATIO else "",
        ),
        Sign(
            "preemptions",
            wording.count(load.num_preempted),
            "requests evicted and recomputed",
            "memory" if load.num_preempted else "",
        ),
        Sign(
            "time in steps",
            wording.percent(load.busy_ratio),
            f"mean; from {wording.percent(BUSY_RATIO)} on the engine is saturated",
            "computing" if (load.busy_ratio or 0.0) >= BUSY_RATIO else "",
        ),
    ]


def _present(rows: Sequence[Row], column: str) -> list[float]:
    return [
        float(row[column])
        for row in rows
        if row[column] is not None and not math.isnan(row[column])
    ]


def _mean(rows: Sequence[Row], column: str) -> float | None:
    found = _present(rows, column)
    return sum(found) / len(found) if found else None


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """How many times faster tokens arrive with speculation than without, for one model.

    Attributes:
        model: The model.
        ratio: exp of the Hodges-Lehmann shift of log TPOT; `lower` and `upper` are its 95 %
            interval.
        num_with: Requests with drafts; `num_without` is the others.
    """

    model: str
    ratio: float
    lower: float
    upper: float
    num_with: int
    num_without: int


def speed_ups(rows: Sequence[Row]) -> list[SpeedUp]:
    """Return the speed-up of each model with enough requests of both kinds."""
    samples: dict[str, dict[bool, list[float]]] = {}
    for row in rows:
        values = [math.log(value) for value in row["tpot_s_each"] if value > 0]
        samples.setdefault(row["model"], {})[bool(row["is_drafted"])] = values
    found = []
    for model, sides in sorted(samples.items()):
        with_drafts, without = sides.get(True, []), sides.get(False, [])
        shift = large_sample_shift(with_drafts, without)
        if shift is not None:
            found.append(
                SpeedUp(
                    model,
                    ratio=math.exp(shift.estimate),
                    lower=math.exp(shift.lower),
                    upper=math.exp(shift.upper),
                    num_with=len(with_drafts),
                    num_without=len(without),
                )
            )
    return found
