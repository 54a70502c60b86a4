"""Shares of the KV cache: who waits, who goes next, and what is held afterwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.control.kv_shares import KvShares, Share

ACME, ROUTE, OTHER = (
    Share(("tenant", "acme"), 100),
    Share(("route", "agent"), 150),
    Share(("tenant", "other"), 100),
)


async def test_who_exceeds_the_share_waits_until_enough_is_given_back() -> None:
    shares = KvShares()
    first, second = (shares.claim([ACME], 60, due) for due in (1, 2))
    elsewhere = shares.claim([OTHER], 90, 3)
    assert [c.let_in.done() for c in (first, second, elsewhere)] == [True, False, True]
    assert (shares.count_waiting(), shares.held()[ACME.owner]) == (1, 60)
    shares.leave(first, None)
    assert second.let_in.done() and shares.held()[ACME.owner] == 60
    shares.leave(second, None)
    shares.leave(elsewhere, None)
    assert shares.held() == {}


async def test_the_earliest_deadline_goes_first_and_no_later_one_overtakes_it() -> None:
    shares = KvShares()
    first = shares.claim([ACME], 80, 1)
    large, small = shares.claim([ACME], 90, 2), shares.claim([ACME], 10, 3)
    urgent = shares.claim([ACME], 50, 1.5)
    assert not any(c.let_in.done() for c in (large, small, urgent))
    shares.leave(first, None)
    assert [c.let_in.done() for c in (urgent, large, small)] == [True, False, False]


async def test_what_alone_exceeds_the_share_is_let_in_alone() -> None:
    shares = KvShares()
    huge = shares.claim([ACME], 500, 1)
    assert huge.let_in.done()
    assert not shares.claim([ACME], 1, 2).let_in.done()


async def test_several_owners_must_all_have_room() -> None:
    shares = KvShares()
    first = shares.claim([ACME, ROUTE], 90, 1)
    waiting = shares.claim([OTHER, ROUTE], 90, 2)
    assert not waiting.let_in.done() and OTHER.owner not in shares.held()
    shares.leave(waiting, None)
    shares.leave(first, None)
    assert shares.held() == {} and shares.count_waiting() == 0


async def test_who_exceeds_its_share_holds_back_no_other_owner_of_its_route() -> None:
    shares = KvShares()
    shares.claim([ACME, ROUTE], 90, 1)
    assert not shares.claim([ACME, ROUTE], 20, 2).let_in.done()
    assert shares.claim([OTHER, ROUTE], 20, 3).let_in.done()


async def test_answers_are_expected_to_be_as_long_as_the_owners_last_ones() -> None:
    shares = KvShares()
    assert shares.expect_answer([ACME]) == 256
    for length in (100, 200):
        shares.leave(shares.claim([ACME], 1, 1), length)
    assert shares.expect_answer([ACME]) == pytest.approx(110)
    # A claim that never held anything says nothing.
    first, waiting = shares.claim([ACME], 100, 1), shares.claim([ACME], 100, 2)
    shares.leave(waiting, 5000)
    shares.leave(first, None)
    assert shares.expect_answer([ACME]) == pytest.approx(110)


async def test_no_answer_teaches_less_than_nothing() -> None:
    shares = KvShares()
    for _ in range(3):
        shares.leave(shares.claim([ACME], 1, 1), -5000)
    assert shares.expect_answer([ACME]) == 0


@pytest.mark.parametrize("tokens", [0, -700])
async def test_every_claim_holds_something(tokens: int) -> None:
    shares = KvShares()
    claims = [shares.claim([ACME], tokens, due) for due in range(1, 120)]
    assert sum(claim.let_in.done() for claim in claims) == 100
    for claim in claims:
        shares.leave(claim, None)
    assert shares.held() == {} and shares.count_waiting() == 0


@given(st.lists(st.tuples(st.integers(-20, 120), st.integers(0, 9), st.booleans()), max_size=40))
async def test_shares_hold_and_nobody_is_forgotten(steps: list[tuple[int, int, bool]]) -> None:
    shares = KvShares()
    claims = []
    for tokens, due, leaves in steps:
        claims.append(shares.claim([ACME, ROUTE], tokens, due))
        if leaves:
            shares.leave(claims.pop(0), None)
        inside = [claim for claim in claims if claim.let_in.done()]
        held = sum(claim.tokens for claim in inside)
        assert shares.held().get(ACME.owner, 0) == held
        assert held <= 100 or len(inside) == 1
        assert bool(inside) == bool(claims)
    for claim in claims:
        shares.leave(claim, None)
    assert shares.held() == {} and shares.count_waiting() == 0
