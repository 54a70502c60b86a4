"""Predict what engines would save without a tenant: replay their requests with it and without.

docs/decisions/0354-what-if-by-replay.md explains the method, docs/guide/cost.md how to read it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evenkeel.whatif.batching import BatchLimits, StepSpeed, Task, busy_seconds
from evenkeel.whatif.step_fit import (
    FloatArray,
    column,
    fit_speed,
    host_gap,
    limits_of,
    step_work,
    unexplained_s,
)
from evenkeel.whatif.stored_work import EngineKey, StoredWork, by_engine, tasks_of

# Parts of the range in which replayed time is compared with measured time.
NUM_PARTS = 8
# A replay that misses the measured time by more predicts nothing.
MAX_REPLAY_ERROR = 0.1
# Part of the requests that cannot be tied to one of several engines.
_MAX_UNTIED_RATIO = 0.01


@dataclass(frozen=True, slots=True)
class PredictedSaving:
    """Engine seconds that would be saved without a tenant.

    Attributes:
        saved_of: The prediction, by the engines' model.
        margin_s: How far it may be off: twice the standard error that these show: parts of the
            replay that differ from what was measured, how steps vary, speeds fitted to half of
            the steps, and the samples' differences if only samples were replayed. None: there
            are too few steps for halves.
        busy_s: Seconds that the engines were busy.
        replay_error: Replayed over measured seconds of what happened, less 1.
        replayed_ratio: Part of the range that was replayed.
        num_requests: Requests that were replayed.
    """

    saved_of: Mapping[str, float]
    margin_s: float | None
    busy_s: float
    replay_error: float
    replayed_ratio: float
    num_requests: int

    @property
    def saved_s(self) -> float:
        """The prediction for all engines."""
        return sum(self.saved_of.values())

    @property
    def is_nothing_shown(self) -> bool:
        """Whether the prediction may be off by as much as it is, so that it shows no saving."""
        return self.margin_s is not None and abs(self.saved_s) <= self.margin_s


@dataclass(frozen=True, slots=True)
class Unpredictable:
    """Why nothing can be predicted, as a clause."""

    reason: str


def predict_saving(
    stored: Sequence[StoredWork], tenant: str, busy_s: float, range_s: float, model: str = ""
) -> PredictedSaving | Unpredictable:
    """Return what engines would save in a range without a tenant from its begin on.

    The others' requests arrive as they did, find the same prefixes in the cache and get the same
    answers.

    Args:
        stored: The whole range, or parts of it as a sample.
        tenant: The tenant.
        busy_s: Seconds that the engines were busy in the whole range.
        range_s: Length of the range.
        model: The engines' model; all if empty.
    """
    work_of: dict[EngineKey, list[StoredWork]] = defaultdict(list)
    num_untied = num_tied = 0
    for each in stored:
        found, num = by_engine(each)
        num_untied += num
        for key, work in found.items():
            if model not in ("", key.model):
                continue
            work_of[key].append(work)
            num_tied += len(work.requests)
    if not work_of:
        return Unpredictable("no steps of an engine are stored for this range")
    if num_untied > _MAX_UNTIED_RATIO * (num_tied + num_untied):
        return Unpredictable(
            f"{num_untied} of {num_tied + num_untied} requests cannot be tied to one of the "
            f"{len(work_of)} engines"
        )
    has_tenant = any(
        row["tenant"] == tenant for parts in work_of.values() for w in parts for row in w.requests
    )
    if not has_tenant:
        return Unpredictable(
            "none of its requests in this range reached an engine whose steps are stored"
        )
    replays: dict[EngineKey, _EngineReplay] = {}
    for key, works in work_of.items():
        if any(map(_begins_in_a_queue, works)):
            return Unpredictable(
                "requests were waiting when a sample of the range began, and samples do not show "
                "for how long; choose a shorter range"
            )
        replay = _EngineReplay.of(works, tenant)
        if replay is None:
            return Unpredictable("too few steps are stored to know how long they take")
        replays[key] = replay
    ratio = sum(each.end_s - each.begin_s for each in stored) / range_s
    return _add_up(replays, busy_s, min(ratio, 1.0), num_tied)


@dataclass(frozen=True, slots=True)
class _EngineReplay:
    """Engine seconds of one engine, by part of the range.

    Attributes:
        measured_s: In fact.
        replayed_s: Replayed.
        without_s: Replayed without the tenant.
        halves_s: Saved in all, by the speeds that each half of the steps shows; empty if unknown.
        noise: Variance of all steps' seconds around what the fit says.
    """

    measured_s: FloatArray
    replayed_s: FloatArray
    without_s: FloatArray
    halves_s: tuple[float, ...]
    noise: float

    @classmethod
    def of(cls, works: Sequence[StoredWork], tenant: str) -> _EngineReplay | None:
        """Replay one engine; None if it is not known how long its steps take."""
        runs = [row for work in works for row in work.runs]
        requests = [row for work in works for row in work.requests]
        steps = step_work(runs, requests)
        gap_s, limits = host_gap(runs), limits_of(runs, requests, steps)
        speed = fit_speed(steps, gap_s)
        if speed is None:
            return None
        whole = [(tasks_of(work), _edges_of(work)) for work in works]
        rest = [(tasks_of(work.without(tenant)), _edges_of(work)) for work in works]
        # Every other eighth.
        is_odd = np.arange(len(runs)) * NUM_PARTS // len(runs) % 2 == 1
        halves = [fit_speed(steps.only(chosen), gap_s) for chosen in (is_odd, ~is_odd)]
        saved = [
            float((_replayed(whole, half, limits) - _replayed(rest, half, limits)).sum())
            for half in halves
            if half is not None
        ]
        return cls(
            np.concatenate([_measured(work) for work in works]),
            _replayed(whole, speed, limits),
            _replayed(rest, speed, limits),
            tuple(saved) if len(saved) == len(halves) else (),
            float((unexplained_s(steps, speed) ** 2).sum()),
        )


def _begins_in_a_queue(work: StoredWork) -> bool:
    """Return whether requests waited all the time in which a sample's replay warms up."""
    warm_up = [row for row in work.runs if row["time_s"] < work.begin_s]
    return bool(warm_up) and all(row["num_waiting"] for row in warm_up)


def _edges_of(work: StoredWork) -> list[float]:
    part_s = (work.end_s - work.begin_s) / NUM_PARTS
    return [work.begin_s + part_s * place for place in range(NUM_PARTS)] + [work.end_s]


def _replayed(
    works: Sequence[tuple[list[Task], list[float]]], speed: StepSpeed, limits: BatchLimits
) -> FloatArray:
    """Return the replayed seconds of tasks between edges."""
    return np.concatenate([busy_seconds(tasks, speed, limits, edges_s) for tasks, edges_s in works])


def _measured(work: StoredWork) -> FloatArray:
    """Return the measured seconds of each part; a run's are spread evenly over its duration."""
    begin_s, busy_s = column(work.runs, "time_s"), column(work.runs, "busy_s")
    duration_s = np.maximum(column(work.runs, "duration_s"), 1e-9)
    edges_s = np.array(_edges_of(work))[:, None]
    before: FloatArray = np.clip((edges_s - begin_s) / duration_s, 0.0, 1.0) @ busy_s
    return np.diff(before)


def _add_up(
    replays: Mapping[EngineKey, _EngineReplay],
    busy_s: float,
    replayed_ratio: float,
    num_requests: int,
) -> PredictedSaving | Unpredictable:
    measured_s = sum(float(replay.measured_s.sum()) for replay in replays.values())
    replayed_s = sum(float(replay.replayed_s.sum()) for replay in replays.values())
    if not measured_s or not replayed_s:
        return Unpredictable("no steps of an engine are stored for this range")
    error = replayed_s / measured_s - 1
    if abs(error) > MAX_REPLAY_ERROR:
        return Unpredictable(
            f"a replay of what happened takes {abs(error):.0%} "
            f"{'more' if error > 0 else 'less'} engine time than was measured"
        )
    saved_of: dict[str, float] = defaultdict(float)
    variance = 0.0
    total = busy_s / replayed_s
    for key, replay in replays.items():
        saved = replay.replayed_s - replay.without_s
        saved_of[key.model] += float(saved.sum()) * total
        variance += float(((replay.measured_s - replay.replayed_s) ** 2).sum())
        # Without the tenant, steps would vary as much.
        variance += replay.noise * float(replay.without_s.sum() / replay.replayed_s.sum())
        if replay.halves_s:
            variance += ((replay.halves_s[0] - replay.halves_s[1]) / 2) ** 2
        if replayed_ratio < 1:
            # What a sample saves beside its part of the time: the busy seconds of all are known.
            of_samples = saved.reshape(-1, NUM_PARTS).sum(axis=1)
            times_s = replay.replayed_s.reshape(-1, NUM_PARTS).sum(axis=1)
            beside = of_samples - times_s * (saved.sum() / replay.replayed_s.sum())
            variance += len(beside) * float(beside.var(ddof=1)) * (1 - replayed_ratio)
    has_halves = all(replay.halves_s for replay in replays.values())
    return PredictedSaving(
        saved_of=dict(saved_of),
        margin_s=2 * math.sqrt(variance) * total if has_halves else None,
        busy_s=busy_s,
        replay_error=error,
        replayed_ratio=replayed_ratio,
        num_requests=num_requests,
    )
