"""Repeats of lost items: how many, and when an item counts as broken."""

import pytest

from evenkeel_evals.ask.answers import Repeats
from evenkeel_evals.judge.repeated_items import GUARD_ALPHA, find_lost, repeats_for


@pytest.mark.parametrize("num_items", [1, 60, 456, 10_000])
def test_repeats_bound_the_false_alarms(num_items: int) -> None:
    count = repeats_for(num_items)
    assert num_items * 0.25 ** (count + 1) <= GUARD_ALPHA
    assert count == 1 or num_items * 0.25**count > GUARD_ALPHA


@pytest.mark.parametrize(
    ("name", "repeats", "is_open", "is_broken"),
    [
        ("nothing yet", Repeats(), True, False),
        ("half", Repeats((True, True), (False,)), True, False),
        ("all", Repeats((True, True), (False, False)), False, True),
        ("the baseline failed once", Repeats((True, False), (False,)), False, False),
        ("the candidate passed once", Repeats((True,), (True,)), False, False),
        ("an answer is missing", Repeats((True, None), (False, False)), False, False),
    ],
)
def test_states(name: str, repeats: Repeats, is_open: bool, is_broken: bool) -> None:
    assert (repeats.is_open(2), repeats.is_broken(2)) == (is_open, is_broken), name


def test_only_lost_pairs_are_suspects(make_pair) -> None:  # type: ignore[no-untyped-def]
    pairs = [
        make_pair(0),
        make_pair(1, True, False),
        make_pair(2, False, True),
        make_pair(3, None, False),
    ]
    assert [pair.index for pair in find_lost(pairs)] == [1]
