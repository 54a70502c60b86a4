"""The step-cost model learns what steps cost, and says how wrong it is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.nonnegative import solve_nonnegative
from evenkeel_runtime.ledger.step_cost_model import (
    DECODE,
    DRAFTED,
    EQUAL_TOKENS,
    FEATURES,
    FIXED,
    MIN_STEPS,
    MIN_TESTED_STEPS,
    PAIRS,
    PREFILL,
    FloatArray,
    StepCost,
    StepCostModel,
    features_of,
)
from tests.unit.runtime.wire.step_builder import Part, Step, pack

# Seconds of a step, a prompt token, an attended pair, a decode, a context token, a draft.
TRUE = np.array([3e-3, 8e-5, 2e-9, 2e-4, 1e-7, 1e-4])


def mixed_steps(count: int, seed: int = 1) -> FloatArray:
    """Features of steps as they come under load: mostly decodes, some with prefill."""
    random = np.random.default_rng(seed)
    features = np.zeros((count, len(FEATURES)))
    features[:, FIXED] = 1
    features[:, DECODE] = random.integers(0, 32, count)
    features[:, DECODE + 1] = features[:, DECODE] * random.integers(10, 2000, count)
    features[:, DRAFTED] = features[:, DECODE] * random.integers(0, 5, count)
    is_prefill = random.random(count) < 0.2
    tokens = random.integers(1, 2000, count) * is_prefill
    features[:, PREFILL] = tokens
    features[:, PAIRS] = tokens * (tokens + 1) / 2
    return features


def learn(model: StepCostModel, features: FloatArray, seconds: FloatArray) -> None:
    """Let the model see steps as they come, a few at a time."""
    for start in range(0, len(features), 50):
        part = slice(start, start + 50)
        model.observe(features[part], seconds[part])


def test_what_steps_cost_is_found_again() -> None:
    model = StepCostModel()
    features = mixed_steps(2000)
    learn(model, features, features @ TRUE)
    cost = model.read()
    assert cost.weights == pytest.approx(TRUE, rel=0.02)


def test_noise_stretches_the_error_and_not_the_weights() -> None:
    model = StepCostModel()
    features = mixed_steps(4000)
    noise = np.random.default_rng(2).lognormal(0, 0.1, len(features))
    learn(model, features, features @ TRUE * noise)
    cost = model.read()
    fresh = mixed_steps(500, seed=3)
    assert cost.predict(fresh) == pytest.approx(fresh @ TRUE, rel=0.1)
    # E|exp(0.1 z) − 1| is 0.08.
    assert cost.error_ratio == pytest.approx(0.08, rel=0.3)


def test_the_error_is_that_of_steps_not_learned_from_yet() -> None:
    model = StepCostModel()
    features = mixed_steps(200)
    model.observe(features, features @ TRUE)
    model.observe(features[:40], features[:40] @ TRUE * 2)
    assert model.read().error_ratio == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("batch", [1, 7, 40])
def test_a_cold_model_shares_by_tokens_until_it_has_predicted_enough(batch: int) -> None:
    model = StepCostModel()
    # The first steps of a server are its slowest, and prompts come before any decoding.
    features = np.concatenate([mixed_steps(400, seed) for seed in (4, 5)])
    order = np.argsort(-features[:, PREFILL], kind="stable")[:400]
    features = features[order]
    seconds = features @ TRUE * np.linspace(40, 1, len(features)).clip(1) ** 1.5
    believed = []
    for start in range(0, len(features), batch):
        model.observe(features[start : start + batch], seconds[start : start + batch])
        cost = model.read()
        assert (cost.error_ratio is None) == bool((cost.weights == EQUAL_TOKENS.weights).all())
        if cost.error_ratio is not None:
            assert cost.error_ratio < 1
            believed.append(model.read().num_steps)
    assert believed and believed[0] >= MIN_STEPS + MIN_TESTED_STEPS


def test_a_model_that_is_worse_than_none_is_not_used() -> None:
    model = StepCostModel()
    features = mixed_steps(400)
    learn(model, features, features @ TRUE)
    assert model.read().error_ratio is not None
    learn(model, features[:100], features[:100] @ TRUE / 10)
    cost = model.read()
    assert cost.error_ratio is None
    assert (cost.weights == EQUAL_TOKENS.weights).all()


def test_a_machine_that_became_slower_is_learned_anew() -> None:
    model = StepCostModel()
    features = mixed_steps(4000)
    learn(model, features, features @ TRUE)
    for start in range(0, 4000, 100):
        part = features[start : start + 100]
        model.observe(part, part @ TRUE * 2)
    assert model.read().weights == pytest.approx(TRUE * 2, rel=0.15)


def test_before_enough_steps_every_token_costs_the_same() -> None:
    model = StepCostModel()
    features = mixed_steps(MIN_STEPS - 1)
    model.observe(features, features @ TRUE)
    cost = model.read()
    assert (cost.weights == EQUAL_TOKENS.weights).all()
    assert cost.error_ratio is None
    assert cost.num_steps == MIN_STEPS - 1


def test_a_kind_of_token_never_seen_costs_what_the_others_do_on_average() -> None:
    model = StepCostModel()
    features = np.zeros((100, len(FEATURES)))
    features[:, FIXED] = 1
    features[:, DECODE] = np.arange(100) % 10 + 1
    learn(model, features, features[:, DECODE] * 1e-3)
    cost = model.read()
    assert cost.weights[PREFILL] == pytest.approx(1e-3, rel=0.2)


def test_steps_without_duration_are_left_out() -> None:
    model = StepCostModel()
    model.observe(mixed_steps(10), np.zeros(10))
    assert model.read().num_steps == 0


@given(
    st.lists(st.lists(st.floats(-5, 5), min_size=3, max_size=3), min_size=4, max_size=8),
    st.lists(st.floats(-5, 5), min_size=3, max_size=3),
    st.none() | st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_the_solution_is_the_minimum_whatever_the_guess(
    rows: list[list[float]], target: list[float], guess: list[bool] | None
) -> None:
    """The Karush-Kuhn-Tucker conditions: w ≥ 0, gradient ≥ 0, and one of both is 0."""
    matrix = np.array(rows)
    normal = matrix.T @ matrix + np.eye(3) * 0.1
    moment = np.array(target)
    solution = solve_nonnegative(normal, moment, None if guess is None else np.array(guess))
    gradient = normal @ solution - moment
    assert (solution >= 0).all()
    assert (gradient >= -1e-6).all()
    assert np.abs(solution * gradient).max() < 1e-6


def test_features_count_pairs_and_context() -> None:
    parts = (Part(prefill=3, context=10), Part(1, context=50, decode=1, drafted=4))
    _, entries = pack([Step(0, 1, parts)])
    # Three tokens after ten: they see 11, 12 and 13.
    assert features_of(entries).tolist() == [[0, 3, 36, 0, 0, 0], [0, 0, 0, 1, 50, 4]]


def test_parts_cost_what_their_features_do() -> None:
    parts = (Part(prefill=3, context=10), Part(1, context=50, decode=1, drafted=4))
    _, entries = pack([Step(0, 1, parts)])
    cost = StepCost(TRUE)
    assert cost.predict_parts(entries) == pytest.approx(cost.predict(features_of(entries)))
