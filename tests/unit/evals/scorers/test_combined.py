"""Literal scorers, latency and cost scorers, and combined scorers."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.errors import ConfigurationError
from evenkeel_evals.scorers.base import Context, Label, LateCheck, Score, make_scorer

R, W, U = Label.RIGHT, Label.WRONG, Label.UNSCORED


@pytest.mark.parametrize(
    ("spec", "reference", "answer", "is_right"),
    [
        ("substring", "Paris", "in Paris.", True),
        ("substring", "Paris", "in paris", False),
        ("substring", ["a", "b"], "a", False),
        ({"name": "substring", "any": True}, ["a", "b"], "b", True),
        ({"name": "substring", "case_sensitive": False}, "PARIS", "in paris", True),
        ("equals", "Yes", "Yes", True),
        ("equals", "Yes", "Yes ", False),
        ({"name": "equals", "strip": True}, "Yes.", " Yes", True),
        ("starts_with", ["No", "Yes"], "Yes, it is", True),
        ("starts_with", "Yes", " Yes", False),
        ({"name": "ends_with", "strip": True}, "42", "It is 42.", True),
        ("ends_with", "42", "It is 42.", False),
        ("contains_json", None, 'so {"a": [1]} it is', True),
        ("contains_json", None, "so {a: 1} it is", False),
        ("contains_json", None, "NaN: [NaN]", False),
        ({"name": "contains_json", "schema": {"required": ["a"]}}, None, '{"b": 1} {"a": 1}', True),
        ({"name": "json", "fence": False}, {"a": 1}, '```json\n{"a": 1}\n```', False),
        ("json", None, "NaN", False),
        ({"name": "not", "scorer": "exact"}, "no", "yes", True),
        ({"name": "not", "scorer": {"name": "not", "scorer": "exact"}}, "no", "no", True),
    ],
)
def test_answers(spec: Any, reference: Any, answer: str, is_right: bool) -> None:
    score = make_scorer(spec, reference).score(answer)
    assert score.label is (R if is_right else W)


@pytest.mark.parametrize(
    ("spec", "reference", "context", "label"),
    [
        ("latency", 2, Context(e2e_s=2.0), R),
        ("latency", 2, Context(e2e_s=2.1), W),
        ("latency", 2, Context(ttft_s=0.1), U),
        ({"name": "latency", "metric": "ttft"}, 0.2, Context(ttft_s=0.1), R),
        ("cost", 0.01, Context(cost=0.01), R),
        ("cost", 0.01, Context(cost=0.02), W),
        ("cost", 0.01, Context(input_tokens=1, output_tokens=1), U),
        (
            {"name": "cost", "input_per_million": 1, "output_per_million": 10},
            0.0015,
            Context(input_tokens=500, output_tokens=100),
            R,
        ),
        (
            {"name": "cost", "input_per_million": 1, "output_per_million": 10},
            0.0015,
            Context(input_tokens=501, output_tokens=100),
            W,
        ),
        ({"name": "not", "scorer": "latency"}, 2, Context(), U),
        ({"name": "not", "scorer": "latency"}, 2, Context(e2e_s=3.0), R),
    ],
)
def test_what_an_answer_took(spec: Any, reference: Any, context: Context, label: Label) -> None:
    assert make_scorer(spec, reference).score("x", context).label is label


def of(*members: tuple[Any, Any]) -> dict[str, Any]:
    return {"name": "all", "of": [{"scorer": s, "reference": r} for s, r in members]}


@pytest.mark.parametrize(
    ("members", "label", "value"),
    [
        ([("exact", "a"), ("substring", "a")], R, 1.0),
        ([("exact", "a"), ("exact", "b")], W, 0.5),
        ([("exact", "a"), ("latency", 1)], U, None),
        # Wrong is wrong, whatever the unscored one would have been.
        ([("latency", 1), ("exact", "b")], W, 0.0),
    ],
)
def test_all_must_hold(members: Any, label: Label, value: float | None) -> None:
    score = make_scorer(of(*members), None).score("a")
    assert (score.label, score.value) == (label, value)


def test_the_reason_names_the_assertion() -> None:
    score = make_scorer(of(("exact", "a"), ("substring", "b")), None).score("a")
    assert score.reason == "1 of 2 fail; assertion 2 (substring): lacks 'b'"


def test_late_checks_are_gathered_and_used() -> None:
    spec = of(
        ("rubric", "is kind"),
        ({"name": "not", "scorer": "rubric"}, "is rude"),
        ({"name": "python", "file": "c.py"}, {"n": 1}),
    )
    scorer = make_scorer(spec, None)
    kind, rude, code = scorer.checks
    assert code == LateCheck("python", "c.py:get_assert", json.dumps({"n": 1}))
    assert scorer.score("x").label is U
    found = {kind: Score.of(True), rude: Score.of(False), code: Score.of(True)}
    assert scorer.score("x", Context(found=found)).label is R
    assert scorer.score("x", Context(found={**found, rude: Score.of(True)})).label is W
    assert scorer.score("x", Context(found={**found, rude: Score.unscored("?")})).label is U


def nested(depth: int) -> Any:
    spec: Any = "exact"
    for _ in range(depth):
        spec = {"name": "not", "scorer": spec}
    return spec


@pytest.mark.parametrize(
    ("spec", "reference", "message"),
    [
        ("substring", "", "empty text"),
        ({"name": "substring", "any": "yes"}, "a", "expected true or false"),
        ("latency", -1, "a number of 0 or more"),
        ("latency", float("nan"), "a number of 0 or more"),
        ({"name": "latency", "metric": "tpot"}, 1, "expected e2e or ttft"),
        ("rubric", " ", "a criterion of 1 to"),
        ("python", None, "needs the option 'file'"),
        ({"name": "python", "file": "../c.py"}, None, "outside the dataset"),
        ({"name": "python", "file": "/c.py"}, None, "outside the dataset"),
        ({"name": "python", "file": "c.py", "function": "a.b"}, None, "is not a name"),
        ({"name": "all", "of": []}, None, "1 to 200 assertions"),
        ({"name": "all", "of": [{"scorer": "exact"}]}, None, "assertion 1: scorer 'exact' needs"),
        ({"name": "all", "of": [{"type": "x"}]}, None, "scorer and reference, and nothing else"),
        ("not", "x", "needs the option 'scorer'"),
        ({"name": ["x"]}, None, "is unknown"),
        (nested(200), "x", "are nested more than"),
        (
            {"name": "json", "schema": {"$ref": "http://127.0.0.1:9/s"}},
            None,
            "refers to something outside",
        ),
    ],
)
def test_what_cannot_work_is_refused(spec: Any, reference: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_scorer(spec, reference)


@pytest.mark.parametrize("text", ['{"a":[' * 50_000, "[" * 200_000, '["' * 100_000])
def test_brackets_that_never_close_do_not_take_for_ever(text: str) -> None:
    assert make_scorer("contains_json", None).score(text).label is not R


@given(st.text(max_size=60))
def test_none_raises_on_any_answer(answer: str) -> None:
    for spec, reference in (("substring", "a"), ("contains_json", None), ("starts_with", "a")):
        assert make_scorer(spec, reference).score(answer).value is not None
