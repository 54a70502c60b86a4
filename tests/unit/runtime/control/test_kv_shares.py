"""Shares of the KV cache: who waits, who goes next, and what is held afterwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.control.kv_shares import Claim, KvShares, Share

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


@given(
    st.lists(
        st.tuples(
            st.sampled_from([(ACME, ROUTE), (OTHER, ROUTE), (ACME,), (OTHER,), (ROUTE,)]),
            st.integers(1, 160),
            st.integers(0, 5),
            st.integers(0, 3),
            st.integers(0, 40),
        ),
        max_size=40,
    )
)
async def test_whoever_waits_for_a_share_has_a_reason_and_is_overtaken_by_nobody_alike(
    steps: list[tuple[tuple[Share, ...], int, int, int, int]],
) -> None:
    """Any owners, sizes and deadlines, and any who leave, whether inside or waiting."""
    shares = KvShares()
    present: list[Claim] = []

    def is_kept_out(claim: Claim, share: Share) -> bool:
        before = [c for c in present if not c.let_in.done() and share in c.shares and c <= claim]
        return any(not shares.fits(share, c.tokens) for c in before)

    for owners, tokens, due, num_leave, which in steps:
        claim = shares.claim(owners, tokens, due)
        alike = [c for c in present if c.shares == owners and not c.let_in.done()]
        assert not claim.let_in.done() or all(claim < other for other in alike)
        present.append(claim)
        for _ in range(min(num_leave, len(present))):
            shares.leave(present.pop(which % len(present)), None)
        for claim in present:
            is_inside = claim.let_in.done()
            assert is_inside or any(is_kept_out(claim, share) for share in claim.shares)
        for share in (ACME, OTHER, ROUTE):
            inside = [c for c in present if c.let_in.done() and share in c.shares]
            held = sum(c.tokens for c in inside)
            assert shares.held().get(share.owner, 0) == held
            assert held <= share.max_tokens or len(inside) == 1
        assert shares.count_waiting() == sum(not c.let_in.done() for c in present)
    for claim in present:
        shares.leave(claim, None)
    assert shares.held() == {} and shares.count_waiting() == 0


class Limit(float):
    """A limit that counts how often it is compared with what its owner holds."""

    num_compared = 0

    def __ge__(self, held: float) -> bool:
        Limit.num_compared += 1
        return float(self) >= held


async def test_what_a_departure_costs_does_not_grow_with_all_who_wait() -> None:
    shares = KvShares()
    room = Share(("route", "*"), Limit(1e9))
    tenants = [Share(("tenant", str(number)), Limit(10)) for number in range(100)]
    claims = [[shares.claim([each, room], 10, due) for due in range(5)] for each in tenants]
    assert shares.count_waiting() == 400
    Limit.num_compared = 0
    shares.leave(claims[7][0], None)
    assert [claim.let_in.done() for claim in claims[7][1:]] == [True, False, False, False]
    assert Limit.num_compared < 10
