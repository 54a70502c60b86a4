"""What a comparison decides, and how often it computes that."""

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from evenkeel.secret_text import SecretAddress
from evenkeel_evals.ask.answer_cache import AnswerCache
from evenkeel_evals.ask.answers import ServerTimes
from evenkeel_evals.ask.client import Reply
from evenkeel_evals.ask.journal import Journal
from evenkeel_evals.ask.recorded_run import Beginning, RecordedRun
from evenkeel_evals.ask.run import CacheMode
from evenkeel_evals.ask.schedule import interleave
from evenkeel_evals.ask.scoring import score_reply
from evenkeel_evals.ask.settings import EvalSettings
from evenkeel_evals.ask.sides import Side
from evenkeel_evals.compare import comparison as module
from evenkeel_evals.compare.comparison import Comparison
from evenkeel_evals.dataset.dataset import Dataset, Item, Message
from evenkeel_evals.scorers.base import Context, Label, Score, Scorer, make_scorer
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.gates import parse_gates, with_errors
from evenkeel_evals.verdict.looks import StoppingRule, judge_look

STORE = SecretAddress("http://h:1")


def make_comparison(make_pair, count: int, mode: StoppingRule = StoppingRule.FIXED) -> Comparison:  # type: ignore[no-untyped-def]
    items = tuple(make_pair(i).item for i in range(count))
    side = Side("a", "http://h", "m", "p", "1", None, {})
    return Comparison(
        settings=EvalSettings(),
        gates=with_errors(parse_gates("accuracy>=-1%")),
        dataset=Dataset("d", "1.0.0", "sha256:00", items, ()),
        sides=(side, replace(side, name="b")),
        planned=interleave(items, 0),
        cache=CacheMode.ISOLATED,
        warmup=0,
        plan=(),
        allows_inconclusive=False,
        mode=mode,
    )


def test_each_look_is_judged_once(make_pair, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    comparison = make_comparison(make_pair, 100, StoppingRule.SEQUENTIAL)
    recorded = RecordedRun(None)
    answer = make_pair(0).a
    for pair in comparison.planned:
        for letter in pair.order:
            recorded.record_answer(pair, letter, answer)
    looks: list[int] = []

    def counting(mode, look, *rest):  # type: ignore[no-untyped-def]
        looks.append(look.number)
        return judge_look(mode, look, *rest)

    monkeypatch.setattr(module, "judge_look", counting)
    assert comparison.judge_if_complete(recorded) is not None
    assert looks == sorted(set(looks))


def test_a_scorer_that_fails_leaves_an_answer_without_a_score(tmp_path: Path) -> None:
    def broken(answer: str, context: Context) -> Score:
        raise TypeError("unhashable\nsecond line")

    item = Item("i", (Message("user", "?"),), "x", Scorer("odd", broken), (), "i")
    score = score_reply(item, Reply(0, 1, text="x"))
    assert (score.label, score.reason) == (
        Label.UNSCORED,
        "the scorer odd failed: TypeError: unhashable",
    )


def test_a_gate_on_cost_waits_for_the_seconds_of_the_engine(make_pair) -> None:  # type: ignore[no-untyped-def]
    comparison = make_comparison(make_pair, 40)
    gates, settings = with_errors(parse_gates("cost<=+5%")), EvalSettings(store_url=STORE)
    comparison = replace(comparison, gates=gates, settings=settings)
    recorded = RecordedRun(None)
    recorded.begin(Beginning("r", 1, comparison.identity(), {"A": "m", "B": "m"}, {}))
    times = {}
    for pair in comparison.planned:
        for letter in pair.order:
            answer = replace(make_pair(0).a, trace_id=f"{pair.index}{letter}")
            recorded.record_answer(pair, letter, answer)
            cost = (1.0 if letter == "A" else 1.3) + pair.index / 1000
            times[answer.trace_id] = ServerTimes(0, 0, 0, 1, engine_s=cost)
    assert comparison.judge_if_complete(recorded) is None
    recorded.record_server_times(times, set(times))
    judgement = comparison.judge_if_complete(recorded)
    assert judgement is not None
    assert judgement.verdict is Verdict.REGRESSED
    assert judgement.results[0].effect.estimate == pytest.approx(0.29, abs=0.02)


def test_each_look_at_costs_waits_for_the_seconds_of_its_own_pairs(make_pair) -> None:  # type: ignore[no-untyped-def]
    comparison = make_comparison(make_pair, 400, StoppingRule.SEQUENTIAL)
    gates, settings = with_errors(parse_gates("cost<=+5%")), EvalSettings(store_url=STORE)
    comparison = replace(comparison, gates=gates, settings=settings)
    recorded = RecordedRun(None)
    recorded.begin(Beginning("r", 1, comparison.identity(), {"A": "m", "B": "m"}, {}))
    first, last = comparison.looks()[0], comparison.looks()[-1]
    assert first.num_pairs < last.num_pairs
    asked: set[str] = set()
    for look in (first, last):
        times = {}
        for pair in comparison.planned[: look.num_pairs]:
            for letter in pair.order:
                trace = f"{pair.index}{letter}"
                if trace not in asked:
                    answer = replace(make_pair(0).a, trace_id=trace)
                    recorded.record_answer(pair, letter, answer)
                    # Alike on average, so that the first look decides nothing.
                    cost = 1.0 + ((pair.index * 7 + (letter == "B") * 3) % 11) * 0.3
                    times[trace] = ServerTimes(0, 0, 0, 1, engine_s=cost)
        assert comparison.judge_if_complete(recorded) is None
        asked |= times.keys()
        recorded.record_server_times(times, times.keys())
    judgement = comparison.judge_if_complete(recorded)
    assert judgement is not None
    assert judgement.results[0].effect.num_pairs == 400
    assert "no cost" not in str(judgement.results[0].effect.note)


def test_seconds_that_the_store_did_not_have_are_asked_for_again_by_the_next_command(  # type: ignore[no-untyped-def]
    make_pair,
    tmp_path: Path,
) -> None:
    comparison = make_comparison(make_pair, 20)
    gates, settings = with_errors(parse_gates("cost<=+5%")), EvalSettings(store_url=STORE)
    comparison = replace(comparison, gates=gates, settings=settings)
    times = {}
    with Journal(tmp_path / "journal.jsonl") as journal:
        recorded = RecordedRun(journal)
        recorded.begin(Beginning("r", 1, comparison.identity(), {"A": "m", "B": "m"}, {}))
        for pair in comparison.planned:
            for letter in pair.order:
                answer = replace(make_pair(0).a, trace_id=f"{pair.index}{letter}")
                recorded.record_answer(pair, letter, answer)
                times[answer.trace_id] = ServerTimes(0, 0, 0, 1, engine_s=1.0)
        recorded.record_server_times({"0A": times["0A"]}, times.keys())
        judgement = comparison.judge_if_complete(recorded)
        assert judgement is not None, "this command has asked"
        assert comparison.conclude(recorded, judgement).decision.exit_code == 3
        assert comparison.may_be_priced_later(recorded, judgement.pairs), "so it is not sent"
    with Journal(tmp_path / "journal.jsonl") as journal:
        recorded = RecordedRun(journal)
        assert recorded.times_asked == {"0A"}
        assert comparison.judge_if_complete(recorded) is None
        recorded.record_server_times(times, times.keys())
        judgement = comparison.judge_if_complete(recorded)
        assert judgement is not None and judgement.results[0].effect.num_pairs == 20
        assert not comparison.may_be_priced_later(recorded, judgement.pairs)


def test_without_a_store_there_are_no_engine_seconds(make_pair) -> None:  # type: ignore[no-untyped-def]
    comparison = make_comparison(make_pair, 20)
    gates = with_errors(parse_gates("cost<=+5%"))
    comparison = replace(
        comparison, gates=gates, settings=EvalSettings(store_url=SecretAddress("none"))
    )
    recorded = RecordedRun(None)
    recorded.begin(Beginning("r", 1, comparison.identity(), {"A": "m", "B": "m"}, {}))
    for pair in comparison.planned:
        for letter in pair.order:
            recorded.record_answer(pair, letter, make_pair(0).a)
    judgement = comparison.judge_if_complete(recorded)
    assert judgement is not None
    assert comparison.conclude(recorded, judgement).decision.exit_code == 3


@pytest.mark.parametrize(
    ("spec", "reference", "is_read"),
    [
        ("exact", "x", True),
        ("latency", 2.0, False),
        ({"name": "not", "scorer": {"name": "latency", "metric": "ttft"}}, 2.0, False),
        ({"name": "all", "of": [{"reference": "x"}, {"scorer": "latency", "reference": 2}]}, None,
         False),
    ],
)  # fmt: skip
def test_cached_answers_are_not_used_by_items_that_are_scored_by_latency(  # type: ignore[no-untyped-def]
    make_pair,
    tmp_path: Path,
    spec: str | dict[str, object],
    reference: object,
    is_read: bool,
) -> None:
    comparison = replace(make_comparison(make_pair, 20), answer_cache=AnswerCache(tmp_path))
    item = replace(comparison.planned[3].item, scorer=make_scorer(spec, reference))
    planned = [replace(comparison.planned[3], item=item), *comparison.planned[4:]]
    assert replace(comparison, planned=planned).reads_cache is is_read


def test_a_run_is_not_continued_under_another_slo_class(make_pair) -> None:  # type: ignore[no-untyped-def]
    plain = make_comparison(make_pair, 40)
    classed = replace(plain, settings=EvalSettings(slo_class="batch"))
    assert "slo_class" not in plain.identity()
    assert classed.identity() == {**plain.identity(), "slo_class": "batch"}


def test_an_slo_class_that_no_header_could_carry_is_refused() -> None:
    with pytest.raises(ValidationError):
        EvalSettings(slo_class="two\nlines")
