"""What a step costs is learned from steps, and a busy machine does not mislead it."""

from dataclasses import replace
from random import Random

import pytest

from evenkeel_runtime.speculation.acceptance import Acceptance, OwnRecord
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


def draft(source: DraftSource, strength: int, length: int = 4) -> Draft:
    return Draft([1] * length, source, strength)


def test_acceptance_is_learned_by_kind_and_position() -> None:
    acceptance = Acceptance(4)
    for _ in range(200):
        acceptance.record(draft(DraftSource.RETRIEVAL, 0), OwnRecord(), 4, 2)
        acceptance.record(draft(DraftSource.PROMPT, 3), OwnRecord(), 4, 0)
    strong = acceptance.survival(draft(DraftSource.RETRIEVAL, 0), OwnRecord())
    assert strong == pytest.approx([1, 1, 0, 0], abs=0.02)
    assert acceptance.survival(draft(DraftSource.PROMPT, 3), OwnRecord())[0] < 0.02
    unknown = acceptance.survival(draft(DraftSource.RETRIEVAL, 1, 2), OwnRecord())
    assert unknown == pytest.approx([0.5, 0.25])


def test_a_cached_answer_is_trusted_from_the_start_until_it_is_wrong() -> None:
    acceptance = Acceptance(4)
    whole = draft(DraftSource.CACHE, 0, 127)
    assert acceptance.survival(whole, OwnRecord())[126] > 0.2
    for _ in range(100):
        acceptance.record(whole, OwnRecord(), 127, 0)
    assert acceptance.survival(whole, OwnRecord())[0] < 0.1
    # Wrong at its first token says nothing about one whose beginning has agreed, nor about others.
    begun = replace(whole, run=32)
    assert acceptance.survival(begun, OwnRecord())[0] > 0.95
    assert acceptance.survival(draft(DraftSource.CACHE, 1), OwnRecord())[0] > 0.9
    for _ in range(400):
        acceptance.record(whole, OwnRecord(), 127, 127)
    assert acceptance.survival(whole, OwnRecord())[126] > 0.8


def test_a_requests_own_record_counts_more_the_longer_it_is() -> None:
    acceptance = Acceptance(4)
    lucky, unlucky = OwnRecord(), OwnRecord()
    for _ in range(20):
        acceptance.record(draft(DraftSource.PROMPT, 2), lucky, 4, 4)
        acceptance.record(draft(DraftSource.PROMPT, 2), unlucky, 4, 0)
    first = acceptance.survival(draft(DraftSource.PROMPT, 2), lucky)[0]
    second = acceptance.survival(draft(DraftSource.PROMPT, 2), unlucky)[0]
    assert first > 0.8
    assert second < 0.4
    # Neither says anything about a cached answer, nor a cached answer about them.
    cached = draft(DraftSource.CACHE, 0)
    assert acceptance.survival(cached, unlucky) == acceptance.survival(cached, lucky)
    before = replace(unlucky)
    acceptance.record(cached, unlucky, 4, 4)
    assert unlucky == before


def test_positions_that_are_less_likely_than_asked_for_are_left_out() -> None:
    acceptance = Acceptance(8)
    assert acceptance.survival(draft(DraftSource.PROMPT, 0, 8), OwnRecord(), least=0.2) == [
        0.5,
        0.25,
    ]
