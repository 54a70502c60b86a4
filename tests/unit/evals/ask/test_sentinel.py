"""The drift sentinel detects a server that changes during a run."""

import random

import pytest

from evenkeel_evals.ask.client import Reply
from evenkeel_evals.ask.sentinel import SentinelAnswer, find_drift, read, sentinel_calls_at


def sentinel_answers(seconds: list[float]) -> list[SentinelAnswer]:
    return [SentinelAnswer(i, s, "same") for i, s in enumerate(seconds)]


def noise(count: int, factor: float, seed: int) -> list[float]:
    generator = random.Random(seed)
    return [
        0.1 * (factor if i >= count // 2 else 1) * generator.uniform(0.9, 1.1) for i in range(count)
    ]


def test_a_server_that_got_slower_is_named() -> None:
    drift = find_drift(sentinel_answers(noise(20, 1.5, 1)))
    assert drift is not None and drift.is_drifting
    assert drift.shift == pytest.approx(0.5, abs=0.1)
    assert "drifted" in drift.describe()


def test_noise_alone_is_no_drift() -> None:
    calls = [find_drift(sentinel_answers(noise(20, 1.0, seed))) for seed in range(200)]
    assert sum(drift is not None and drift.is_drifting for drift in calls) <= 6


def test_short_runs_have_no_sentinel_and_long_ones_few() -> None:
    assert sentinel_calls_at(99) == {}
    assert len(sentinel_calls_at(100)) == 10
    assert len(sentinel_calls_at(5000)) == 40
    assert max(sentinel_calls_at(120)) < 120
    assert find_drift(sentinel_answers([0.1] * 9)) is None


def test_answers_that_change_and_errors_are_counted() -> None:
    seen = [read(i, Reply(0, 1, text="a" if i else "b", e2e_s=0.1)) for i in range(12)]
    seen.append(read(12, Reply(0, 1, error="HTTP 500")))
    drift = find_drift(seen)
    assert drift is not None
    assert (drift.num_readings, drift.num_errors, drift.num_texts) == (12, 1, 2)
    assert "2 different answers" in drift.describe()
