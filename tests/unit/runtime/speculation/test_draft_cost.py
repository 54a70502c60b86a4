"""What a step costs is learned from steps, and a busy machine does not mislead it."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.speculation.acceptance import Acceptance, AgreementRates, OwnRecord
from evenkeel_runtime.speculation.draft_cost import StepCostFit
from evenkeel_runtime.speculation.sources import Draft, DraftSource


@pytest.mark.parametrize("late_ratio", [0.0, 0.1])
@pytest.mark.parametrize("scale", [1e-4, 1e-2, 10.0])
def test_true_prices_are_found_on_any_scale(scale: float, late_ratio: float) -> None:
    random = Random(1)
    fit = StepCostFit(8, 8 * 12)
    for _ in range(3000):
        requests, drafted = random.randint(5, 8), random.choice([0, 0, 5, 20, 60])
        seconds = scale * (1 + 0.05 * requests + 0.2 * (drafted > 0) + 0.01 * drafted)
        seconds *= random.uniform(0.98, 1.02)
        fit.add(requests, drafted, seconds * (10 if random.random() < late_ratio else 1))
    prices = fit.prices(6)
    assert fit.is_known
    assert prices.step_s == pytest.approx(1.3 * scale, rel=0.1)
    assert prices.token_s == pytest.approx(0.01 * scale, rel=0.25)
    assert prices.checking_s == pytest.approx(0.2 * scale, abs=0.12 * scale)


def test_prices_are_never_below_nothing() -> None:
    fit = StepCostFit(4, 4)
    for drafted in (0, 4, 0, 4, 0, 4) * 10:
        fit.add(4, drafted, 0.01 - 0.002 * drafted)
    prices = fit.prices(4)
    assert prices.step_s > 0
    assert prices.token_s >= 0
    assert prices.checking_s >= 0


def test_both_kinds_of_step_must_have_been_seen() -> None:
    fit = StepCostFit(1, 4)
    for _ in range(20):
        fit.add(1, 0, 0.01)
    assert not fit.is_known
    for _ in range(8):
        fit.add(1, 4, 0.0)
    assert not fit.is_known
    for _ in range(8):
        fit.add(1, 4, 0.02)
    assert fit.is_known


def draft(source: DraftSource, run: int, length: int = 4) -> Draft:
    return Draft([1] * length, source, run)


def test_acceptance_is_learned_by_source_and_by_the_tokens_that_agreed() -> None:
    acceptance = Acceptance()
    for _ in range(200):
        acceptance.record(draft(DraftSource.RETRIEVAL, 4), OwnRecord(), 8, 4)
        acceptance.record(draft(DraftSource.PROMPT, 4), OwnRecord(), 4, 0)
    learned = acceptance.survival(draft(DraftSource.RETRIEVAL, 4, 5), OwnRecord())
    assert learned == pytest.approx([1, 1, 1, 1, 0], abs=0.05)
    assert acceptance.survival(draft(DraftSource.PROMPT, 4), OwnRecord())[0] < 0.04
    # What is right up to here is likely to go on so, wherever a draft begins.
    assert acceptance.survival(draft(DraftSource.RETRIEVAL, 6, 1), OwnRecord())[0] > 0.95


def test_positions_that_were_never_tried_are_likely_if_all_before_are() -> None:
    chances = Acceptance().survival(draft(DraftSource.RETRIEVAL, 2, 15), OwnRecord())
    assert chances[0] < 0.8
    assert chances[14] > 0.3 * chances[1]


def test_a_cached_answer_is_trusted_from_the_start_until_it_is_wrong() -> None:
    acceptance = Acceptance()
    whole = draft(DraftSource.CACHE, 0, 127)
    assert acceptance.survival(whole, OwnRecord())[126] > 0.2
    for _ in range(100):
        acceptance.record(whole, OwnRecord(), 127, 0)
    assert acceptance.survival(whole, OwnRecord())[0] < 0.1
    # Wrong at its first token says nothing about one whose beginning has agreed, nor about others.
    begun = replace(whole, run=32)
    assert acceptance.survival(begun, OwnRecord())[0] > 0.95
    trusted_less = replace(whole, kind=1)
    assert acceptance.survival(trusted_less, OwnRecord())[0] > 0.9
    for _ in range(400):
        acceptance.record(whole, OwnRecord(), 127, 127)
    assert acceptance.survival(whole, OwnRecord())[126] > 0.8


def test_a_requests_own_record_counts_more_the_longer_it_is() -> None:
    acceptance = Acceptance()
    lucky, unlucky = OwnRecord(), OwnRecord()
    for _ in range(20):
        acceptance.record(draft(DraftSource.PROMPT, 4), lucky, 4, 4)
        acceptance.record(draft(DraftSource.PROMPT, 4), unlucky, 4, 0)
    first = acceptance.survival(draft(DraftSource.PROMPT, 4), lucky)[0]
    second = acceptance.survival(draft(DraftSource.PROMPT, 4), unlucky)[0]
    assert first > 0.8
    assert second < 0.4
    # Neither says anything about a cached answer, nor a cached answer about them.
    cached = draft(DraftSource.CACHE, 0)
    assert acceptance.survival(cached, unlucky) == acceptance.survival(cached, lucky)
    before = replace(unlucky)
    acceptance.record(cached, unlucky, 4, 4)
    assert unlucky == before


def test_one_long_draft_that_was_right_does_not_outweigh_the_wrong_ones_after_it() -> None:
    acceptance, own = Acceptance(), OwnRecord()
    acceptance.record(draft(DraftSource.RETRIEVAL, 64, 128), own, 128, 128)
    short_match = draft(DraftSource.RETRIEVAL, 2, 128)
    for _ in range(4):
        acceptance.record(short_match, own, 128, 0)
    assert len(acceptance.survival(short_match, own, least=0.05)) < 15


@given(st.integers(0, 200), st.integers(0, 128), st.integers(0, 128))
def test_a_long_draft_is_recorded_as_its_tokens_one_by_one(
    run: int, drafted: int, accepted: int
) -> None:
    accepted = min(accepted, drafted)
    whole, single = AgreementRates([1 / 4] * 8), AgreementRates([1 / 4] * 8)
    whole.record(run, drafted, accepted)
    for position in range(min(accepted + 1, drafted)):
        single.record(run + position, 1, int(position < accepted))
    assert whole.rates() == pytest.approx(single.rates())


def test_positions_that_are_less_likely_than_asked_for_are_left_out() -> None:
    likely = Acceptance().survival(draft(DraftSource.PROMPT, 2, 8), OwnRecord(), least=0.5)
    assert 0 < len(likely) < 8
    assert min(likely) >= 0.5
