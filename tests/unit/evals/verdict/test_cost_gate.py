"""The gate on cost: from tokens and prices, or engine seconds, to a verdict."""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel.prices.price_file import PriceFile, read_price_file
from evenkeel_evals.ask.answers import Answer, AnsweredPair, ServerTimes
from evenkeel_evals.report.table import cells
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict import cost_effects
from evenkeel_evals.verdict.cost_effects import find_missing, measure_costs
from evenkeel_evals.verdict.decision import COULD_NOT_MEASURE, decide
from evenkeel_evals.verdict.gates import CostGate, parse_gates
from evenkeel_evals.verdict.looks import StoppingRule, judge_once, plan_looks
from evenkeel_evals.verdict.measure import estimate
from evenkeel_evals.verdict.plan import plan_gates
from evenkeel_evals.verdict.pricing import ENGINE_UNIT, Pricing, require_prices, with_unit
from evenkeel_evals.verdict.repeated_items import measure_items

GATE = CostGate("cost<=+5%", 0.05)
NOW = dt.datetime(2026, 11, 25, tzinfo=dt.UTC)
PRICES = """
currency = "EUR"
[[model]]
name = "big"
input = 10
cached_input = 1
output = 30
source = "https://example.org/prices"
read = 2026-11-01
[[model]]
name = "small"
input = 1
output = 3
source = "https://example.org/prices"
read = 2026-11-01
[[engine]]
name = "own*"
gpu_hour = 3.6
source = "contract"
read = 2026-11-01
"""
Make = Callable[..., AnsweredPair]


@pytest.fixture
def prices(tmp_path: Path) -> PriceFile:
    path = tmp_path / "prices.toml"
    path.write_text(PRICES)
    return read_price_file(path)


def used(
    answer: Answer,
    inputs: int | None,
    outputs: int | None,
    cached: int | None = None,
    model: str = "",
) -> Answer:
    reply = replace(answer.reply, input_tokens=inputs, output_tokens=outputs, cached_tokens=cached)
    return replace(answer, reply=reply, model=model)


def costing(make_pair: Make, a: float | None, b: float | None, index: int = 0) -> AnsweredPair:
    pair = make_pair(index)
    return replace(pair, a=replace(pair.a, cost=a), b=replace(pair.b, cost=b))


def noisy(make_pair: Make, factor: float, count: int = 200) -> list[AnsweredPair]:
    generator = np.random.default_rng(7)
    base = generator.lognormal(-8, 1.0, count)
    noise = generator.lognormal(0, 0.1, (2, count))
    costs = base * noise * np.array([[1.0], [factor]])
    return [costing(make_pair, float(a), float(b), i) for i, (a, b) in enumerate(costs.T)]


def test_the_gate_is_written_as_those_on_latency() -> None:
    assert parse_gates("cost<=+5%") == [GATE]
    for text in ("cost>=-5%", "cost<=-5%"):
        with pytest.raises(ConfigurationError):
            parse_gates(text)


def test_each_side_has_its_models_prices_and_cached_tokens_theirs(
    make_pair: Make, prices: PriceFile
) -> None:
    pair = make_pair(0)
    pair = replace(pair, a=used(pair.a, 1000, 100, cached=600), b=used(pair.b, 1000, 100))
    (priced,) = Pricing(prices, NOW, {"A": "big", "B": "small"}).apply([pair])
    assert priced.a.cost == pytest.approx((400 * 10 + 600 * 1 + 100 * 30) / 1e6)
    assert priced.b.cost == pytest.approx((1000 * 1 + 100 * 3) / 1e6)


def test_reasoning_tokens_have_their_own_price(make_pair: Make, tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(PRICES.replace("output = 30", "output = 30\nreasoning = 50"))
    pair = make_pair(0)
    thought = used(pair.a, 0, 100)
    thought = replace(thought, reply=replace(thought.reply, reasoning_tokens=80))
    pair = replace(pair, a=thought, b=used(pair.b, 0, 100))
    (priced,) = Pricing(read_price_file(path), NOW, {"A": "big", "B": "big"}).apply([pair])
    assert (priced.a.cost, priced.b.cost) == pytest.approx((0.0046, 0.003))


def test_a_line_may_name_its_own_model(make_pair: Make, prices: PriceFile) -> None:
    pair = make_pair(0)
    pair = replace(pair, a=used(pair.a, 1000, 0, model="small"), b=used(pair.b, 1000, 0))
    (priced,) = Pricing(prices, NOW, {"A": "big", "B": "big"}).apply([pair])
    assert (priced.a.cost, priced.b.cost) == pytest.approx((0.001, 0.01))


UNPRICED = {
    "a model without a price": ("other", 10, 10, None, "no price of 'other' on 2026-11-25"),
    "a model that nobody named": ("", 10, 10, None, "its model is not known"),
    "tokens that were not reported": ("big", None, 10, None, "its tokens are not known"),
    "cached tokens without a price": ("small", 10, 10, 5, "a kind of its tokens has no price"),
    "an engine without records": ("own-7b", 10, 10, None, "the store has no engine seconds"),
}


@pytest.mark.parametrize(
    ("model", "inputs", "outputs", "cached", "why"), UNPRICED.values(), ids=UNPRICED.keys()
)
def test_without_a_price_there_is_no_cost_and_a_reason(
    make_pair: Make,
    prices: PriceFile,
    model: str,
    inputs: int | None,
    outputs: int | None,
    cached: int | None,
    why: str,
) -> None:
    pair = make_pair(0)
    pair = replace(pair, a=used(pair.a, inputs, outputs, cached), b=used(pair.b, 10, 10))
    pairs = Pricing(prices, NOW, {"A": model, "B": "big"}).apply([pair])
    assert pairs[0].a.cost is None
    assert why in (find_missing(pairs) or "")
    effect = measure_costs(GATE, pairs)
    assert (effect.estimate, effect.baseline) == (None, None)


def test_ones_own_engine_is_priced_by_its_seconds_and_devices(
    make_pair: Make, prices: PriceFile
) -> None:
    times = {"a" * 32: ServerTimes(0, 0, 0, 1, engine_s=2.0, num_devices=4)}
    priced = Pricing(prices, NOW, {"A": "own-7b", "B": "own-7b"}, times).apply([make_pair(0)])
    assert priced[0].a.cost == pytest.approx(2 * 4 * 3.6 / 3600)
    seconds = Pricing(None, NOW, {}, times).apply([make_pair(0)])
    assert seconds[0].a.cost == 2.0


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(1.3, Verdict.REGRESSED), (0.7, Verdict.BETTER), (1.0, Verdict.NO_WORSE)],
    ids=["30% dearer", "30% cheaper", "the same"],
)
def test_verdicts(make_pair: Make, factor: float, expected: Verdict) -> None:
    pairs = noisy(make_pair, factor)
    result = judge_once([GATE], pairs, 0).results[0]
    assert result.verdict is expected
    effect = result.effect
    assert effect.lower is not None and effect.upper is not None and effect.estimate is not None
    assert effect.lower < effect.estimate < effect.upper
    assert effect.lower < factor - 1 < effect.upper
    total = sum(p.b.cost or 0 for p in pairs) / sum(p.a.cost or 0 for p in pairs)
    assert effect.estimate == pytest.approx(total - 1)
    assert estimate(GATE, pairs) == effect.estimate


def test_the_currency_does_not_matter(make_pair: Make) -> None:
    pairs = [costing(make_pair, 1e-10, 2e-10, i) for i in range(30)]
    assert judge_once([GATE], pairs, 0).results[0].verdict is Verdict.REGRESSED


def test_equal_costs_are_no_worse_with_an_interval_of_a_point(make_pair: Make) -> None:
    pairs = [costing(make_pair, 0.1 + i, 0.1 + i, i) for i in range(20)]
    result = judge_once([GATE], pairs, 0).results[0]
    assert result.verdict is Verdict.NO_WORSE
    assert (result.effect.lower, result.effect.upper) == pytest.approx((0, 0), abs=1e-9)


def test_a_free_baseline_has_no_ratio(make_pair: Make) -> None:
    effect = measure_costs(GATE, [costing(make_pair, 0.0, 0.1, i) for i in range(20)])
    assert effect.estimate is None
    assert "costs nothing" in (effect.note or "")


def test_two_free_sides_are_no_worse(make_pair: Make) -> None:
    pairs = [costing(make_pair, 0.0, 0.0, i) for i in range(20)]
    result = judge_once([GATE], pairs, 0).results[0]
    assert result.verdict is Verdict.NO_WORSE
    assert (result.effect.estimate, result.effect.note) == (0, "both sides cost nothing")


def test_unchanged_candidates_are_rarely_called_regressed(make_pair: Make) -> None:
    generator = np.random.default_rng(3)
    num_regressed = 0
    for _ in range(200):
        costs = generator.lognormal(-8, 1.0, (14, 1)) * generator.lognormal(0, 0.3, (14, 2))
        pairs = [costing(make_pair, float(a), float(b), i) for i, (a, b) in enumerate(costs)]
        num_regressed += judge_once([GATE], pairs, 0).verdict is Verdict.REGRESSED
    assert num_regressed <= 10


@pytest.mark.parametrize(
    ("share", "factor", "num_pairs", "spread", "expected"),
    [
        (0.0, 1, 300, 0.6, 50),
        (0.02, 5, 300, 0.6, 70),
        (0.01, 10, 300, 0.6, 95),
        (0.01, 10, 1000, 0.6, 60),
        (0.01, 10, 300, 1.0, 210),
        (0.01, 10, 1000, 1.0, 110),
    ],
)
def test_how_often_rare_expensive_answers_pass_at_the_margin(
    share: float, factor: float, num_pairs: int, spread: float, expected: int
) -> None:
    generator = np.random.default_rng(5)
    num_passed = 0
    for _ in range(1000):
        base = generator.lognormal(0, spread, num_pairs)
        a, b = base * generator.lognormal(0, 0.1, (2, num_pairs))
        # Typical answers are cheaper; together they cost 5 % more.
        b *= 1.05 / (1 + share * (factor - 1))
        b *= np.where(generator.random(num_pairs) < share, factor, 1)
        num_passed += cost_effects._p_not_below(b - 1.05 * a) < 0.05
    # 5 %, and more where a few answers decide: a plain t test passes 130 to 280 of those with 1 %.
    assert abs(num_passed - expected) <= 35


def test_cheap_answers_and_a_few_expensive_ones_are_not_called_better(make_pair: Make) -> None:
    pairs = [costing(make_pair, 1.0, 0.99 if i % 30 else 1.25, i) for i in range(90)]
    result = judge_once([GATE], pairs, 0).results[0]
    assert result.effect.estimate == pytest.approx((3 * 0.25 - 87 * 0.01) / 90)
    assert result.verdict is Verdict.NO_WORSE


def test_repeats_of_an_item_count_once(make_pair: Make) -> None:
    pairs = noisy(make_pair, 1.1, 40)
    twice = measure_items(GATE, [*pairs, *pairs], 0)
    assert twice == measure_costs(GATE, pairs)


def test_a_missing_cost_ends_the_run_with_could_not_measure(make_pair: Make) -> None:
    pairs = noisy(make_pair, 1.0)[:180]
    pairs += [costing(make_pair, 1.0, None, 180 + i) for i in range(20)]
    judgement = judge_once([GATE], pairs, 0)
    decision = decide(judgement, 0.05, allows_inconclusive=True)
    assert (decision.verdict, decision.exit_code) == (COULD_NOT_MEASURE, 3)
    assert "20 of 200 pairs have no cost" in (decision.unmeasured or "")


def test_a_few_answers_without_a_cost_are_left_out_and_said(make_pair: Make) -> None:
    pairs = [*noisy(make_pair, 1.0, 199), costing(make_pair, 1.0, None, 199)]
    effect = measure_costs(GATE, pairs)
    assert effect.num_pairs == 199
    assert effect.note == "1 pairs without a cost on both sides left out"


def test_a_failed_request_is_no_cheap_answer(make_pair: Make) -> None:
    failed = make_pair(0, b=None)
    pairs = [replace(failed, a=replace(failed.a, cost=1.0), b=replace(failed.b, cost=0.0))]
    assert find_missing(pairs) is None
    assert measure_costs(GATE, pairs).num_pairs == 0


def test_cost_cannot_be_judged_at_any_time() -> None:
    with pytest.raises(ConfigurationError, match="--mode sequential"):
        plan_looks(StoppingRule.ANYTIME, [GATE], 100)


def test_the_plan_says_what_it_assumes() -> None:
    (line,) = plan_gates([GATE], 300)
    assert line.can_pass and line.can_fail
    assert "of the mean cost" in line.describe()


def test_models_without_a_price_are_refused_before_anything_is_asked(prices: PriceFile) -> None:
    require_prices(prices, ["big", "own-7b", None], NOW)
    with pytest.raises(CannotMeasureError, match="no price of 'other'"):
        require_prices(prices, ["big", "other"], NOW)


def test_the_table_shows_costs_in_their_currency(make_pair: Make, prices: PriceFile) -> None:
    (gate,) = with_unit([GATE], prices)
    row = cells(judge_once([gate], noisy(make_pair, 1.0), 0).results[0])
    assert row[3].endswith(" EUR")
    assert row[5].endswith(" %")
    assert with_unit([GATE], None)[0].unit == ENGINE_UNIT  # type: ignore[union-attr]
