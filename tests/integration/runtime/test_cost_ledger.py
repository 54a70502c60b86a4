"""Costs add up, and a saving is predicted, with vLLM's own scheduler; the full figures: bench."""

from collections.abc import Iterator
from typing import Any

import pytest

from bench.cost_ledger import MAX_ERROR, MAX_GAP, make_mix, predict
from evenkeel.whatif.saving import PredictedSaving
from tests.fixtures import random_model
from tests.fixtures.replayed_engine import ReplayedEngine, additive, open_engine


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplayedEngine]:
    model = random_model.build(tmp_path_factory.mktemp("model"), hidden=64, layers=1)
    with open_engine(model) as engine:
        yield engine


def test_requests_and_idle_add_up_to_the_time_of_the_engine(engine: ReplayedEngine) -> None:
    asks, _ = make_mix(77, 3, 600.0, 0.05)
    replay = engine.replay(asks, additive, num_blocks=400)
    account = replay.account
    assert len(replay.requests) == len(asks)
    outside_s = account.other_s + account.between_s + account.idle_s + account.unrecorded_s
    assert replay.spent_s() == pytest.approx(replay.busy_s, rel=MAX_GAP)
    assert replay.spent_s() + outside_s == pytest.approx(replay.wall_s, rel=MAX_GAP)
    assert account.idle_s > 0.5 * replay.wall_s


@pytest.mark.parametrize(
    ("seed", "seconds", "rate", "num_blocks"),
    [(3, 120.0, 0.15, 1000), (5, 20.0, 2.0, 3000), (8, 20.0, 1.0, 500)],
    ids=["room for all", "always busy", "a queue for the cache"],
)
def test_what_an_engine_saves_without_a_tenant_is_predicted(
    engine: ReplayedEngine, seed: int, seconds: float, rate: float, num_blocks: int
) -> None:
    asks, names = make_mix(seed, 3, seconds, rate)
    options: dict[str, Any] = {"num_blocks": num_blocks, "max_num_seqs": 32}
    whole = engine.replay(asks, additive, **options)
    rest = [ask for ask in asks if ask.tenant != names[0]]
    saved_s = whole.busy_s - engine.replay(rest, additive, seed=1, **options).busy_s
    found = predict(whole, names[0])
    assert isinstance(found, PredictedSaving), found
    assert found.saved_s == pytest.approx(saved_s, rel=MAX_ERROR)
