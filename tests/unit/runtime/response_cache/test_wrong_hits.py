"""Wrong hits among those served stay within the limit, whoever chooses the traffic."""

import random

from evenkeel_runtime.response_cache.wrong_hits import WrongHits


def test_each_of_the_first_hits_is_replayed_and_the_share_falls_with_those_served() -> None:
    hits = WrongHits(0.02, 0.05, 0.1)
    ratios = []
    for _ in range(3000):
        ratios.append(hits.replay_ratio)
        hits.record_served()
    assert ratios[0] == ratios[149] == 1.0
    assert ratios == sorted(ratios, reverse=True)
    assert 0.3 < ratios[1000] < 0.5
    assert 0.1 <= ratios[-1] < 0.15


def test_a_wrong_hit_raises_the_share_and_too_many_spend_the_limit() -> None:
    hits = WrongHits(0.02, 0.05, 0.1)
    for _ in range(1000):
        hits.record_served()
    before = hits.replay_ratio
    hits.record_wrong("names", before)
    assert hits.replay_ratio > before and not hits.is_spent
    for _ in range(9):
        hits.record_wrong("names", before)
    assert hits.is_spent and hits.replay_ratio == 1.0
    hits.restart()
    assert (hits.num_served, hits.bound, hits.is_spent) == (0, 0.0, False)


def test_few_replays_may_be_under_way_before_many_are_served() -> None:
    hits = WrongHits(0.02, 0.05, 0.1)
    assert hits.may_serve
    hits.num_pending = 2
    assert not hits.may_serve
    hits.record_replayed()
    assert hits.may_serve


def test_wrong_hits_that_begin_at_the_lowest_share_are_found_before_they_exceed_the_limit() -> None:
    num_within = 0
    for seed in range(100):
        order = random.Random(seed)
        hits = WrongHits(0.02, 0.05, 0.1)
        for _ in range(1500):
            hits.record_served()
        num_wrong = 0
        while not hits.is_spent:
            ratio = hits.replay_ratio
            hits.record_served()
            num_wrong += 1
            if order.random() < ratio:
                hits.record_wrong("names", ratio)
        num_within += num_wrong <= 0.02 * hits.num_served
    assert num_within >= 95
