"""Repeats of lost items: how many, and when an item counts as broken."""

from dataclasses import replace

import pytest

from evenkeel_evals.ask.answers import AnsweredPair, Repeats
from evenkeel_evals.verdict.repeated_items import GUARD_ALPHA, find_lost, repeats_for


@pytest.mark.parametrize("num_items", [1, 60, 456, 10_000])
def test_repeats_bound_the_false_alarms(num_items: int) -> None:
    count = repeats_for(num_items)
    assert num_items * 0.25 ** (count + 1) <= GUARD_ALPHA
    assert count == 1 or num_items * 0.25**count > GUARD_ALPHA


@pytest.mark.parametrize(
    ("name", "repeats", "next_side", "is_broken"),
    [
        ("nothing yet", Repeats(), "A", False),
        ("half", Repeats((True, True), (False,)), "B", False),
        ("all", Repeats((True, True), (False, False)), None, True),
        ("the baseline failed once", Repeats((True, False), (False,)), None, False),
        ("the candidate passed once", Repeats((True,), (True,)), None, False),
        ("no answer is no clearance", Repeats((True, None), (False, False)), "A", False),
        ("it is asked again", Repeats((True, True), (None, False, False)), None, True),
        ("but not forever", Repeats((True, True), (False, None, None, None)), None, False),
    ],
)
def test_states(name: str, repeats: Repeats, next_side: str | None, is_broken: bool) -> None:
    assert (repeats.next_side(2), repeats.is_broken(2)) == (next_side, is_broken), name


def test_only_lost_pairs_are_suspects(make_pair) -> None:  # type: ignore[no-untyped-def]
    pairs = [
        make_pair(0),
        make_pair(1, True, False),
        make_pair(2, False, True),
        make_pair(3, None, False),
    ]
    assert [pair.index for pair in find_lost(pairs)] == [1]


def test_an_item_asked_repeatedly_is_one_suspect_if_it_was_lost_each_time(make_pair) -> None:  # type: ignore[no-untyped-def]
    def asked(number: int, *results: tuple[bool | None, bool | None]) -> list[AnsweredPair]:
        item = make_pair(number).item
        pairs = [make_pair(10 * number + i, a, b) for i, (a, b) in enumerate(results)]
        return [replace(pair, item=item) for pair in pairs]

    pairs = [
        *asked(1, (True, False), (True, False)),
        *asked(2, (True, False), (True, True)),
        *asked(3, (True, False), (False, None)),
        *asked(4, (None, False), (True, None), (True, False)),
    ]
    assert [pair.index for pair in find_lost(pairs)] == [10, 42]
