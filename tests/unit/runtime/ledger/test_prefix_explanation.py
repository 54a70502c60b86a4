"""Why the prefix cache missed: named cases, and the warning about prompts that move."""

import logging
from typing import Any

import pytest
from msgspec.structs import replace

from evenkeel_runtime.ledger.attribution import Ledger, PrefixUse
from evenkeel_runtime.ledger.prefix_explanation import Miss, PrefixExplainer, PrefixExplanation
from evenkeel_runtime.wire.observation import Observation, pack_tokens

BLOCK = 16
SYSTEM = list(range(1000, 1100))


def seen(request_id: str, prompt: list[int], **more: Any) -> Observation:
    base = Observation(
        request_id=request_id,
        model="m",
        operation="chat",
        arrival_unix_ns=0,
        arrival_ns=9_000_000_000,
        end_ns=10_000_000_000,
        prompt=pack_tokens(prompt),
    )
    return replace(base, **more)


def ledger(prompt: list[int], cached: int = 0, lost: int = 0, block: int = BLOCK) -> Ledger:
    use = PrefixUse(len(prompt), cached, lost, block, 8_000_000_000 if lost else None, None)
    return Ledger({"ttft.prefill.own": 0.1}, prefix=use)


def explain(
    explainer: PrefixExplainer, request_id: str, prompt: list[int], cached: int = 0, **more: object
) -> PrefixExplanation:
    found = explainer.explain(seen(request_id, prompt, **more), ledger(prompt, cached))
    assert found is not None
    return found


def test_a_prompt_never_seen() -> None:
    found = explain(PrefixExplainer(), "a", SYSTEM)
    assert (found.miss, found.missed_tokens, found.diverged_at) == (Miss.NEVER_SEEN, 96, None)
    # 96 of the 100 tokens that were computed.
    assert found.cost_s == pytest.approx(0.096)


def test_a_prompt_whose_blocks_were_all_there() -> None:
    explainer = PrefixExplainer()
    explain(explainer, "a", SYSTEM)
    found = explain(explainer, "b", SYSTEM, cached=96)
    assert (found.miss, found.missed_tokens, found.cost_s) == (Miss.NONE, 0, 0.0)


def test_a_prompt_that_leaves_an_earlier_one() -> None:
    explainer = PrefixExplainer()
    explain(explainer, "a", [*SYSTEM, *[1] * 50], tenant="acme")
    prompt = [*SYSTEM, *[2] * 50]
    found = explain(explainer, "b", prompt, cached=96, tenant="acme")
    assert (found.miss, found.missed_tokens) == (Miss.DIVERGED, 48)
    assert (found.diverged_at, found.near_id, found.unstable_tokens) == (100, "a", 0)
    assert found.own_around == (*SYSTEM[-12:], *[2] * 12)
    assert found.near_around == (*SYSTEM[-12:], *[1] * 12)


def test_another_tenants_prompt_is_not_shown() -> None:
    explainer = PrefixExplainer()
    explain(explainer, "a", [*SYSTEM, *[1] * 50], tenant="acme")
    found = explain(explainer, "b", [*SYSTEM, *[2] * 50], cached=96, tenant="other")
    assert (found.diverged_at, found.near_id, found.near_around) == (100, None, ())


def test_a_prompt_that_goes_on_where_an_earlier_one_ended_did_not_leave_it() -> None:
    explainer = PrefixExplainer()
    explain(explainer, "a", SYSTEM)
    found = explain(explainer, "b", [*SYSTEM, *range(100)], cached=96)
    assert (found.miss, found.diverged_at) == (Miss.NEVER_SEEN, None)


def test_the_same_prompt_of_another_salt() -> None:
    explainer = PrefixExplainer()
    explain(explainer, "a", SYSTEM, cache_salt="one")
    found = explain(explainer, "b", SYSTEM, cache_salt="two")
    assert (found.miss, found.diverged_at) == (Miss.OTHER_SALT, None)


def test_what_was_lost_to_eviction_comes_first() -> None:
    explainer = PrefixExplainer()
    explain(explainer, "a", SYSTEM)
    found = explainer.explain(seen("b", SYSTEM), ledger(SYSTEM, cached=32, lost=64))
    assert found is not None
    assert (found.miss, found.missed_tokens) == (Miss.EVICTED, 64)
    record = seen("b", SYSTEM)
    found.fill(record)
    attributes = record.to_attributes()
    assert attributes["evenkeel.prefix.evicted_s"] == 1.0
    assert attributes["evenkeel.prefix.lost_tokens"] == 64
    assert "evenkeel.prefix.evicted_by" not in attributes


def test_a_cache_that_is_off_misses_nothing() -> None:
    found = PrefixExplainer().explain(seen("a", SYSTEM), ledger(SYSTEM, block=0))
    assert found is not None
    assert (found.miss, found.missed_tokens) == (Miss.OFF, 0)


def test_a_request_that_was_never_scheduled_has_no_explanation() -> None:
    explainer = PrefixExplainer()
    assert explainer.explain(seen("a", SYSTEM), Ledger({})) is None
    assert explainer.explain(seen("a", []), ledger([])) is None


def test_prompts_whose_static_part_moves_are_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    explainer = PrefixExplainer()
    with caplog.at_level(logging.WARNING):
        found = [
            explain(explainer, str(day), [1, 2, 3, 4, day, *SYSTEM, day], prompt_name="greeting")
            for day in range(500, 510)
        ]
    assert [s.unstable_tokens for s in found] == [0, *[100] * 9]
    assert {s.diverged_at for s in found[1:]} == {4}
    assert explainer.num_unstable == 9
    (record,) = caplog.records
    assert "'greeting' change at token 4 and repeat 100 tokens after it" in record.getMessage()


def test_sums_by_reason() -> None:
    explainer = PrefixExplainer()
    explain(explainer, "a", SYSTEM)
    explain(explainer, "b", SYSTEM, cached=96)
    assert explainer.num_by_miss == {"never_seen": 1, "none": 1}
    assert explainer.missed_tokens_by_miss["never_seen"] == 96
