"""What is measured behind the gate: its pace, first tokens, and the places that they allow."""

import math

import pytest

from evenkeel_runtime.control.pace import (
    FOR_PATIENT,
    FOR_URGENT,
    ActiveLimits,
    ConcurrencyLimit,
    FirstTokens,
    Pace,
)


def test_the_pace_is_known_after_some_turns_and_by_limit() -> None:
    pace = Pace()
    pace.begin(100.0)
    for number in range(1, 16):
        pace.record(0.2, 100.0 + number)
        assert pace.per_s() is None
    for number in range(16, 33):
        pace.record(30.0 if number % 2 else 0.2, 100.0 + number)
    assert pace.per_s() == pytest.approx(1.0)
    # Of 32 turns 8 were for those that can wait.
    assert pace.per_s(30.0) == pytest.approx(8 / 32)
    assert pace.per_s(60.0) == 0


def test_time_without_a_queue_says_nothing_of_the_engine() -> None:
    pace = Pace()
    for start in range(0, 2000, 100):
        pace.begin(float(start))
        pace.record(0.2, start + 0.5)
        pace.pause()
        pace.record(0.2, start + 50.0)
    assert pace.per_s() == pytest.approx(2.0)


def test_only_the_last_turns_count() -> None:
    pace = Pace()
    pace.begin(0.0)
    for number in range(1, 101):
        pace.record(0.2, float(number))
    for number in range(1, 65):
        pace.record(0.2, 100 + number / 10)
    assert pace.per_s() == pytest.approx(10.0)


def test_the_least_time_to_a_first_token_is_of_its_class_and_of_late() -> None:
    seen = FirstTokens()
    assert seen.least_s("chat") == 0.0
    seen.record("chat", 0.01)
    for _ in range(63):
        seen.record("chat", 0.2)
    assert seen.least_s("chat") == 0.01
    seen.record("chat", 0.3)
    assert (seen.least_s("chat"), seen.least_s("batch")) == (0.2, 0.0)
    seen.keep({"batch": None})
    assert seen.least_s("chat") == 0.0


def give(places: ConcurrencyLimit, ratio: float, times: int, num_inside: int) -> int:
    for _ in range(times * 16):
        places.record(ratio, min(num_inside, places.num))
    return places.num


def test_places_are_vllms_until_first_tokens_take_too_much_of_their_limits() -> None:
    places = ConcurrencyLimit(256, FOR_PATIENT)
    assert give(places, 0.5, 10, 200) == 256
    # What is not used is taken away first.
    assert give(places, 0.9, 1, 100) == 85
    assert give(places, 0.5, 10, 85) == 85
    # The fewer, the sooner: so it goes on, down to the fewest.
    ratio = 0.9
    while places.num > 16:
        ratio = max(0.61, ratio * 0.9)
        give(places, ratio, 1, 256)
        assert places.num < 256
        if ratio == 0.61:
            break
    assert places.num < 60
    assert give(places, 0.1, 100, 16) == 256


def test_places_that_bring_nothing_are_given_back() -> None:
    """First tokens wait for their own long prompts: with fewer requests inside for as long."""
    places = ConcurrencyLimit(256, FOR_PATIENT)
    seen = [give(places, 0.9, 1, 256) for _ in range(100)]
    assert min(seen) > 100
    # It is not tried again at once.
    assert seen.count(256) > 60


def test_the_shortest_limit_is_that_of_those_who_ask_at_present() -> None:
    active = ActiveLimits()
    assert active.shortest_s(0.0) == math.inf
    active.record(30.0, 1.0)
    active.record(0.2, 1.0)
    active.record(0.5, 2.0)
    assert active.shortest_s(4.0) == 0.2
    assert active.shortest_s(4.5) == 0.5
    active.record(30.0, 5.5)
    assert active.shortest_s(6.0) == 30.0


def test_no_more_places_than_the_file_allows() -> None:
    places = ConcurrencyLimit(8, FOR_PATIENT)
    assert give(places, 0.9, 10, 8) == 8
    places.resize(4)
    assert give(places, 0.1, 10, 4) == 4


@pytest.mark.parametrize("most", [17, 20, 24, 26])
def test_few_places_are_given_back_as_well(most: int) -> None:
    places = ConcurrencyLimit(most, FOR_PATIENT)
    seen = [give(places, 0.9, 1, most) for _ in range(100)]
    assert min(seen) == 16
    assert seen.count(most) > 50


def test_who_cannot_wait_is_held_back_late_and_little() -> None:
    places = ConcurrencyLimit(256, FOR_URGENT)
    assert give(places, 0.99, 10, 200) == 256
    assert places.is_unrestricted
    # A stall is over before it has been seen three times.
    assert give(places, 1.1, 2, 200) == 256
    assert give(places, 0.9, 1, 200) == 256
    assert give(places, 1.1, 2, 200) == 256
    assert give(places, 1.1, 1, 200) == 194
    assert not places.is_unrestricted
    assert give(places, 0.9, 10, 194) == 194
    assert give(places, 0.7, 2, 256) == 256


def test_a_class_that_came_often_is_away_sooner_than_one_that_comes_now_and_then() -> None:
    active = ActiveLimits()
    for number in range(101):
        active.record(0.2, number * 0.03)
        if number % 33 == 0:
            active.record(0.1, number * 0.03)
    assert active.shortest_s(3.2) == 0.1
    assert active.shortest_s(6.1) == math.inf
    for number in range(100):
        active.record(0.2, 10 + number * 0.03)
    assert active.shortest_s(13.2) == 0.2
    assert active.shortest_s(13.5) == math.inf
