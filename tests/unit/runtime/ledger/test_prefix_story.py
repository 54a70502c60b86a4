"""Why the prefix cache missed: named cases, and the warning about prompts that move."""

from __future__ import annotations

import logging

import pytest
from msgspec.structs import replace

from evenkeel_runtime.ledger.charges import Ledger, PrefixUse
from evenkeel_runtime.ledger.prefix_story import Miss, PrefixStory, PrefixTeller
from evenkeel_runtime.wire.observation import Observation, pack_tokens

BLOCK = 16
SYSTEM = list(range(1000, 1100))


def seen(request_id: str, prompt: list[int], **more: object) -> Observation:
    base = Observation(
        request_id=request_id,
        model="m",
        operation="chat",
        arrival_unix_ns=0,
        arrival_ns=9_000_000_000,
        end_ns=10_000_000_000,
        prompt=pack_tokens(prompt),
    )
    return replace(base, **more)  # type: ignore[arg-type]


def ledger(prompt: list[int], cached: int = 0, lost: int = 0, block: int = BLOCK) -> Ledger:
    use = PrefixUse(len(prompt), cached, lost, block, 8_000_000_000 if lost else None, None)
    return Ledger({"ttft.prefill.own": 0.1}, prefix=use)


def tell(
    teller: PrefixTeller, request_id: str, prompt: list[int], cached: int = 0, **more: object
) -> PrefixStory:
    story = teller.tell(seen(request_id, prompt, **more), ledger(prompt, cached))
    assert story is not None
    return story


def test_a_prompt_never_seen() -> None:
    story = tell(PrefixTeller(), "a", SYSTEM)
    assert (story.miss, story.missed_tokens, story.diverged_at) == (Miss.NEVER_SEEN, 96, None)
    # 96 of the 100 tokens that were computed.
    assert story.cost_s == pytest.approx(0.096)


def test_a_prompt_whose_blocks_were_all_there() -> None:
    teller = PrefixTeller()
    tell(teller, "a", SYSTEM)
    story = tell(teller, "b", SYSTEM, cached=96)
    assert (story.miss, story.missed_tokens, story.cost_s) == (Miss.NONE, 0, 0.0)


def test_a_prompt_that_leaves_an_earlier_one() -> None:
    teller = PrefixTeller()
    tell(teller, "a", [*SYSTEM, *[1] * 50], tenant="acme")
    prompt = [*SYSTEM, *[2] * 50]
    story = tell(teller, "b", prompt, cached=96, tenant="acme")
    assert (story.miss, story.missed_tokens) == (Miss.DIVERGED, 48)
    assert (story.diverged_at, story.near_id, story.unstable_tokens) == (100, "a", 0)
    assert story.own_around == (*SYSTEM[-12:], *[2] * 12)
    assert story.near_around == (*SYSTEM[-12:], *[1] * 12)


def test_another_tenants_prompt_is_not_shown() -> None:
    teller = PrefixTeller()
    tell(teller, "a", [*SYSTEM, *[1] * 50], tenant="acme")
    story = tell(teller, "b", [*SYSTEM, *[2] * 50], cached=96, tenant="other")
    assert (story.diverged_at, story.near_id, story.near_around) == (100, None, ())


def test_a_prompt_that_goes_on_where_an_earlier_one_ended_did_not_leave_it() -> None:
    teller = PrefixTeller()
    tell(teller, "a", SYSTEM)
    story = tell(teller, "b", [*SYSTEM, *range(100)], cached=96)
    assert (story.miss, story.diverged_at) == (Miss.NEVER_SEEN, None)


def test_the_same_prompt_of_another_salt() -> None:
    teller = PrefixTeller()
    tell(teller, "a", SYSTEM, cache_salt="one")
    story = tell(teller, "b", SYSTEM, cache_salt="two")
    assert (story.miss, story.diverged_at) == (Miss.OTHER_SALT, None)


def test_what_was_lost_to_eviction_comes_first() -> None:
    teller = PrefixTeller()
    tell(teller, "a", SYSTEM)
    story = teller.tell(seen("b", SYSTEM), ledger(SYSTEM, cached=32, lost=64))
    assert story is not None
    assert (story.miss, story.missed_tokens) == (Miss.EVICTED, 64)
    record = seen("b", SYSTEM)
    story.fill(record)
    attributes = record.to_attributes()
    assert attributes["evenkeel.prefix.evicted_s"] == 1.0
    assert attributes["evenkeel.prefix.lost_tokens"] == 64
    assert "evenkeel.prefix.evicted_by" not in attributes


def test_a_cache_that_is_off_misses_nothing() -> None:
    story = PrefixTeller().tell(seen("a", SYSTEM), ledger(SYSTEM, block=0))
    assert story is not None
    assert (story.miss, story.missed_tokens) == (Miss.OFF, 0)


def test_a_request_that_was_never_scheduled_has_no_story() -> None:
    teller = PrefixTeller()
    assert teller.tell(seen("a", SYSTEM), Ledger({})) is None
    assert teller.tell(seen("a", []), ledger([])) is None


def test_prompts_whose_static_part_moves_are_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    teller = PrefixTeller()
    with caplog.at_level(logging.WARNING):
        stories = [
            tell(teller, str(day), [1, 2, 3, 4, day, *SYSTEM, day], prompt_name="greeting")
            for day in range(500, 510)
        ]
    assert [s.unstable_tokens for s in stories] == [0, *[100] * 9]
    assert {s.diverged_at for s in stories[1:]} == {4}
    assert teller.num_unstable == 9
    (record,) = caplog.records
    assert "'greeting' change at token 4 and repeat 100 tokens behind it" in record.getMessage()


def test_sums_by_reason() -> None:
    teller = PrefixTeller()
    tell(teller, "a", SYSTEM)
    tell(teller, "b", SYSTEM, cached=96)
    assert teller.num_by_miss == {"never_seen": 1, "none": 1}
    assert teller.missed_tokens_by_miss["never_seen"] == 96
