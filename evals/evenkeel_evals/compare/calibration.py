"""Measures the noise of this machine, model and dataset by running a side against itself."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel_evals.ask.answers import AnsweredPair, LatencyMetric
from evenkeel_evals.dataset.dataset import Dataset
from evenkeel_evals.stats.binary import proportion
from evenkeel_evals.stats.clusters import cluster_codes
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.gate_verdicts import judge
from evenkeel_evals.verdict.gates import Gate, name_of
from evenkeel_evals.verdict.measure import estimate
from evenkeel_evals.verdict.plan import Assumptions

FLOOR_LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Calibration:
    """The noise measured in A/A runs.

    Attributes:
        dataset: Hash of the items.
        side: Hash of the side.
        num_pairs: Pairs per run.
        num_runs: Real runs, not resampled.
        discordance: Share of pairs in which exactly one answer is right.
        scatter: Standard deviation of log(B/A) across pairs, by latency, without the outer 1%
            on each side, which a single stall would dominate.
        noise_floor: By gate measure, the change that 95% of resampled A/A runs stay below, in
            either direction.
        num_resamples: Resampled runs judged.
        num_false_alarms: Resampled runs judged regressed.
        false_alarm_ci95: Wilson interval of their share.
    """

    dataset: str
    side: str
    num_pairs: int
    num_runs: int
    discordance: float
    scatter: dict[str, float]
    noise_floor: dict[str, float]
    num_resamples: int
    num_false_alarms: int
    false_alarm_ci95: tuple[float, float]

    def to_assumptions(self) -> Assumptions:
        """Return the assumptions for a plan."""
        return Assumptions(
            discordance=self.discordance,
            scatter={metric: self.scatter.get(metric.value, 0.30) for metric in LatencyMetric},
            noise_floor=self.noise_floor,
            floor_pairs=self.num_pairs,
            is_measured=True,
        )

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def calibrate(
    gates: Sequence[Gate],
    runs: Sequence[Sequence[AnsweredPair]],
    identity: tuple[str, str],
    num_resamples: int,
    progress: Callable[[int, int], None],
) -> Calibration:
    """Return the noise estimated from runs of one side against itself.

    With nothing changed, "A" and "B" are interchangeable: swapping them at random in whole clusters
    turns each real run into any number of A/A runs with the same noise, ties and clusters.

    Args:
        gates: The gates to find noise floors for and to count false alarms with.
        runs: The pairs of each run, all of the same items.
        identity: Hash of the dataset and of the side.
        num_resamples: Number of resampled runs to judge.
        progress: Called with runs judged and the total.

    Raises:
        CannotMeasureError: If no pair has a score on both sides.
    """
    pool = [pair for run in runs for pair in run]
    scored = [pair for pair in pool if pair.is_measured]
    if not scored:
        raise CannotMeasureError("no pair has a score on both sides; see the run's errors")
    generator = np.random.default_rng(0)
    shifts: dict[str, list[float]] = {name_of(gate): [] for gate in gates}
    num_false_alarms = 0
    for number in range(num_resamples):
        pairs = _swapped(runs[number % len(runs)], generator)
        for gate in gates:
            shown = estimate(gate, pairs)
            if shown is not None:
                shifts[name_of(gate)].append(abs(shown))
        num_false_alarms += judge(gates, pairs, number).verdict is Verdict.REGRESSED
        progress(number + 1, num_resamples)
    return Calibration(
        dataset=identity[0],
        side=identity[1],
        num_pairs=len(runs[0]),
        num_runs=len(runs),
        discordance=sum(p.a.is_right != p.b.is_right for p in scored) / len(scored),
        scatter={
            metric.value: spread
            for metric in LatencyMetric
            if (spread := _scatter(pool, metric)) is not None
        },
        noise_floor={
            name: float(np.quantile(values, FLOOR_LEVEL))
            for name, values in shifts.items()
            if values
        },
        num_resamples=num_resamples,
        num_false_alarms=num_false_alarms,
        false_alarm_ci95=proportion(num_false_alarms, num_resamples).wilson,
    )


def _swapped(pairs: Sequence[AnsweredPair], generator: np.random.Generator) -> list[AnsweredPair]:
    codes = cluster_codes([pair.item.cluster_id for pair in pairs])
    flips = (generator.random(len(pairs)) < 0.5)[codes]
    return [
        replace(pair, a=pair.b, b=pair.a) if flip else pair
        for pair, flip in zip(pairs, flips, strict=True)
    ]


def _scatter(pairs: Sequence[AnsweredPair], metric: LatencyMetric) -> float | None:
    both = [found for pair in pairs if (found := pair.latencies_s(metric)) is not None]
    if len(both) < 10:
        return None
    logs = np.sort([math.log(b / a) for a, b in both])
    cut = len(logs) // 100
    return float(np.std(logs[cut : len(logs) - cut], ddof=1))


def read_assumptions(path: Path | None, dataset: Dataset) -> tuple[Assumptions, str | None]:
    """Return the assumptions for a plan, and a doubt about them.

    They come from a calibration if there is one, else they are the defaults.

    Raises:
        ConfigurationError: If the file was not written by `eval calibrate`.
    """
    if path is None:
        return Assumptions(), None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        found = Calibration(**record)
        known = found.to_assumptions()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError, TypeError) as error:
        raise ConfigurationError(
            f"{path} is not a calibration; create one with `evenkeel eval calibrate`"
        ) from error
    if found.dataset == dataset.content_hash:
        return known, None
    return known, f"{path} was measured with other items than {dataset.name} has now"
