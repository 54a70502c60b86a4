"""Production requests are sampled with known, correct probabilities."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_evals.production.live_estimate import Scored, drift_p, estimate
from evenkeel_evals.production.live_sample import SamplingPlan, draw, within_budget

PLAN = SamplingPlan(("tenant",), 0.1, 3)


def requests(**counts: int) -> list[dict[str, object]]:
    return [{"tenant": t, "id": f"{t}{i}"} for t, n in counts.items() for i in range(n)]


def test_rare_strata_are_seen_and_weights_add_up_to_all() -> None:
    drawn = draw(requests(big=1000, small=7, tiny=1), PLAN, "s")
    assert Counter(d.stratum for d in drawn) == {"big": 100, "small": 3, "tiny": 1}
    assert sum(1 / d.probability for d in drawn) == pytest.approx(1008)
    assert draw(requests(big=1000, small=7, tiny=1), PLAN, "s") == drawn
    assert draw(requests(big=1000, small=7, tiny=1), PLAN, "t") != drawn


def test_what_a_request_does_not_say_is_a_stratum_of_its_own() -> None:
    rows: list[dict[str, Any]] = [{"tenant": None, "id": 1}, {"tenant": "a", "id": 2}]
    assert {d.stratum for d in draw(rows, PLAN, "s")} == {"-", "a"}


def test_each_request_is_drawn_as_often_as_its_probability_says() -> None:
    population = requests(big=40, small=4)
    hits = Counter(
        d.request["id"] for seed in range(4000) for d in draw(population, PLAN, str(seed))
    )
    # Binomial, 4000 draws: 6 standard deviations either side.
    for request in population:
        probability = 0.1 if request["tenant"] == "big" else 0.75
        spread = 6 * (4000 * probability * (1 - probability)) ** 0.5
        assert abs(hits[request["id"]] - 4000 * probability) < spread


@given(st.integers(0, 60), st.integers(0, 40))
def test_a_budget_keeps_the_weights_right(size: int, budget: int) -> None:
    drawn = draw(requests(a=size * 3, b=size), PLAN, "s")
    kept = within_budget(drawn, budget)
    assert len(kept) == min(budget, len(drawn))
    for one, whole in zip(kept, drawn, strict=False):
        assert one.probability == pytest.approx(whole.probability * len(kept) / len(drawn))


def simulate(share: dict[str, float], windows: int, seed: int) -> list[Scored]:
    """Return scored rows of production traffic with these shares of right answers."""
    import random

    generator = random.Random(seed)
    rows = []
    for window in range(windows):
        population = [
            {**r, "right": generator.random() < share[str(r["tenant"])]}
            for r in requests(big=90, small=10)
        ]
        for d in draw(population, SamplingPlan(("tenant",), 0.05, 3), f"{seed} {window}"):
            rows.append(Scored(window, d.probability, bool(d.request["right"])))
    return rows


def test_the_weighted_share_is_that_of_all_requests_and_covered() -> None:
    truth = 0.9 * 0.95 + 0.1 * 0.2
    estimates = [
        estimate("s", simulate({"big": 0.95, "small": 0.2}, 20, k), None) for k in range(150)
    ]
    mean = sum(e.share or 0.0 for e in estimates) / len(estimates)
    assert mean == pytest.approx(truth, abs=0.01)
    plain = sum(
        sum(bool(r.is_right) for r in simulate({"big": 0.95, "small": 0.2}, 20, k))
        for k in range(20)
    )
    assert plain / (20 * 160) < truth - 0.1
    covered = sum((e.lower or 0) <= truth <= (e.upper or 1) for e in estimates)
    assert covered >= 138


def test_drift_is_found_and_hardly_ever_seen_where_there_is_none() -> None:
    good = [drift_p(simulate({"big": 0.95, "small": 0.95}, 60, k), 0.95) for k in range(120)]
    # p ≤ 0.05 in at most 5% of runs, however often one looks: 6 expected at most, 14 is 99.9%.
    assert sum(p <= 0.05 for p in good) <= 14
    bad = [drift_p(simulate({"big": 0.8, "small": 0.8}, 60, k), 0.95) for k in range(20)]
    assert sum(p <= 0.001 for p in bad) >= 18


def test_no_score_is_no_data() -> None:
    found = estimate("s", [Scored(0, 0.5, None)], 0.9)
    assert (found.share, found.lower, found.num_unscored, found.drift_p) == (None, None, 1, 1.0)
    assert "no data" in found.describe()
    assert not found.is_drifting
