"""Each scorer on answers that are right, wrong, and nearly right."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.errors import ConfigurationError
from evenkeel_evals.scorers.base import Label, Score, make_scorer
from evenkeel_evals.scorers.words import normalise

SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("spec", "reference", "answer", "is_right"),
    [
        ("exact", "Yes.", " Yes.\n", True),
        ("exact", "Yes.", "yes.", False),
        ("exact", "caf\u00e9", "cafe\u0301", True),
        ("exact", "cafe\u0301", "caf\u00e9", True),
        ("exact", "cafe", "caf\u00e9", False),
        ("exact", "ﬁ", "fi", False),
        ("exact", ["Yes.", "Sure."], "Sure.", True),
        ("normalised", "It costs 4 euros.", "it costs  4 euros", True),
        ("normalised", "It costs 1.5 euros.", "it costs 15 euros", False),
        ("normalised", "−3 degrees", "3 degrees", False),
        ("normalised", "−3 degrees", "-3 degrees!", True),
        ("normalised", "Ｃafé", "café", True),
        ("normalised", "It's", "it´s", True),
        ("normalised", "1", "1\ufe0f\u20e3", True),
        ("normalised", "cafe\u0301", "Café", True),
        ("normalised", "दिन", "दिन।", True),
        ("normalised", "दिन", "दान", False),
        ("normalised", "C#", "C", False),
        ("normalised", "C#", "c#.", True),
        ("normalised", "C++", "C", False),
        ("normalised", "Paris", "# Paris", True),
        ("normalised", "Paris", "| **Paris** |", True),
        ("normalised", "5 €", "5 $", False),
        ("normalised", "5 ₹", "5 ¥", False),
        ("normalised", "5 ₹", "5₹.", True),
        ("normalised", "a < b", "a > b", False),
        ("normalised", "Great 👍", "Great 👎", False),
        ("normalised", "20 °C", "20°C", True),
        ("normalised", "!=", "=", False),
        ("normalised", "==", "!=", False),
        ("normalised", "==", " == ", True),
        ("normalised", "Paris", "Paris ✅", True),
        ("normalised", "Paris", "✅", False),
        ("normalised", "👍", "👎", False),
        ("normalised", "👍", "👍\ufe0f", True),
        ("normalised", "👍", "", False),
        ("contains", "👍", "Great 👍!", True),
        ("contains", "👍", "Great 👎!", False),
        ({"name": "contains", "not": ["👎", "北京"]}, "yes", "yes 👎", False),
        ({"name": "contains", "not": ["👎", "北京"]}, "yes", "yes, 北京。", False),
        ("contains", "Great 👍", "Great 👎!", False),
        ("contains", "Great 👍", "Great 👍!", True),
        ("contains", "Paris Lyon", "Paris → Lyon", True),
        ("contains", "20", "20°C", True),
        ("contains", "C", "It is C#.", False),
        ("f1", "Paris", "Paris ✅", True),
        ("contains", "北京", "答案是北京。", True),
        ("contains", "北京", "答案是东京。", False),
        ("contains", "iPhone 15", "我要iPhone 15吗", True),
        ("contains", "30 天", "30天内", True),
        ("contains", "30天", "130天内", False),
        ("contains", "กรุงเทพ", "คือกรุงเทพครับ", True),
        ("contains", "दिन", "आज का दिन है।", True),
        ("contains", "दिन", "दान है।", False),
        ("contains", "30 days", "Within 30 days, free.", True),
        ("contains", "30 days", "Within 130 days.", False),
        ("contains", ["30 days", "free"], "Within 30 days.", False),
        ({"name": "contains", "not": ["sorry"]}, "30 days", "Sorry, 30 days.", False),
        ("numeric", 42, "The answer is 42.", True),
        ("numeric", "1,250.5", "about 1250.5 euros", True),
        ("numeric", 1250.5, "etwa 1.250,5 Euro", True),
        ("numeric", "1.250,50", "about 1250.5 euros", True),
        ("numeric", 0.5, "1.250,5", False),
        ("numeric", 1234567.8, "1.234.567,8", True),
        ("numeric", -1250.5, "-1.250,5.", True),
        ("numeric", 1250.5, "environ 1\u202f250,5\u00a0€", True),
        ("numeric", 1250.5, "1\u00a0250.5", True),
        ("numeric", 1250, "1\u00a0250, oder 1.250,0, ja", True),
        ("numeric", 1250, "1\u00a0250", True),
        ("numeric", 1.25, "1.250", True),
        ("numeric", 456, "0.123,456", True),
        ("numeric", 5, "1,5", True),
        ("numeric", 2, "1.000,2.000", True),
        ("numeric", 3, "1 2 3", True),
        ("numeric", 1e3, "1e3", True),
        ("numeric", 42, "42 or rather 43", False),
        ("numeric", -3, "−3", True),
        ("numeric", 42, "none", False),
        ("numeric", 0, "TABLE0", True),
        ("numeric", 0.5, "about .5", True),
        ("numeric", 5, "3-5", True),
        ("numeric", 19, "COVID-19", True),
        ("numeric", -5, "答案是-5", True),
        ("numeric", -5, "답은-5입니다", True),
        ("numeric", -5, "答案为−5", True),
        ("numeric", 5, "3−5", True),
        ("numeric", 0.002, "it is 2e−3", True),
        ("numeric", -5, "f(3)=-5", True),
        ("numeric", 1234567890123, "1234567890124", False),
        ("numeric", "12345678901234567890", "12345678901234567999", False),
        ("numeric", "12,345,678,901,234,567,890", "12345678901234567890", True),
        ("numeric", 10**400, str(10**400), True),
        ("numeric", 10**400, str(10**400 + 1), False),
        ("numeric", 0.1 + 0.2, "0.3", True),
        ("numeric", 1, "1e999999999", False),
        ("numeric", 1, f"1e{10**20}", False),
        ({"name": "numeric", "tolerance": 0.1}, 0.3, "0.4", True),
        ({"name": "numeric", "tolerance": 0.5}, 10, "10.5", True),
        ({"name": "numeric", "relative": 0.01}, 1000, "1011", False),
        ("regex", r"order \d{5}", "Your order 12345 is on its way", True),
        ({"name": "regex", "full": True}, r"\d{5}", "no 12345", False),
        ({"name": "regex", "case_sensitive": False}, "YES", "yes", True),
        ("json", '{"a": 1, "b": [1, 2]}', '{"b": [1, 2.0], "a": 1}', True),
        ("json", {"a": 1}, '```json\n{"a": 1}\n```', True),
        ("json", {"a": 1}, '{"a": true}', False),
        ("json", {"a": 1}, '{"a": 1} and more', False),
        ("json", {"a": 1}, "not json", False),
        ({"name": "json", "schema": SCHEMA}, None, '{"id": 7}', True),
        ({"name": "json", "schema": SCHEMA}, None, '{"id": "7"}', False),
        ("f1", "the parcel ships today", "ships today the parcel", True),
        ("f1", "the parcel ships today", "tomorrow perhaps", False),
        ({"name": "f1", "threshold": 0.5}, "a b c d", "a b x y", True),
        ("f1", "दिन", "दान", False),
        ("f1", "今天天气很好", "今天天气真好", True),
        ("f1", "==", "!=", False),
        ("exact", "x", "", False),
    ],
)
def test_answers(spec: Any, reference: Any, answer: str, is_right: bool) -> None:
    score = make_scorer(spec, reference).score(answer)
    assert score.label is (Label.RIGHT if is_right else Label.WRONG)
    assert score.value is not None and 0 <= score.value <= 1


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("½", "1/2"),
        ("1/2", "½."),
        ("¾ cup", "3/4 cup"),
        ("1 1/2 cups", "1½ cups"),
        ("x = 3", "x = 3 ✅"),
        ("x = 3", "> x = 3"),
        ("x = 3", "> > **x = 3**"),
        ("x = 3\ny = 4", "> x = 3\n> y = 4"),
        ("x = 3", "→ x = 3"),
        ("x = 3", "* x = 3"),
        ("x = 3", "*x* = 3"),
        ("let x = 3", "let *x* = 3"),
        ("≥ 5", ">= 5"),
        ("> 5", "> 5"),
        ("25 °C", "→ 25 °C"),
        ("25 °C", "25 °C ✅"),
        ("5 ₹", "✅ 5 ₹"),
        ("5 × 3 = 15", "5 * 3 = 15"),
        ("5 × 3 = 15", "5*3=15"),
        ("5 · 3 = 15", "5*3=15"),
        ("6 ÷ 2 = 3", "6/2 = 3"),
        ("2 + 3 = 5", "2+3=5"),
        ("2*(x + 1) = 4", "2 × (x+1) = 4"),
        ("A → B", "A -> B"),
        ("a ≠ b", "a != b"),
        ("a ≤ b", "a <= b"),
        ("Nestlé®", "Nestlé"),
        ("Nestlé", "Nestlé®"),
        ("Acme", "Acme™"),
        ("Windows © = 3", "Windows = 3"),
        ("C++", "C++ ✅"),
        ("AC/DC", "AC-DC"),
        ("Answer", "Answer#"),
        ("Results", "# Results#"),
        ("C#", "# C#"),
        ("F#", "f# 👍"),
    ],
)
def test_equal_answers(reference: str, answer: str) -> None:
    for scorer in ("normalised", "contains"):
        assert make_scorer(scorer, reference).score(answer).label is Label.RIGHT, scorer
    unwanted = make_scorer({"name": "contains", "not": reference}, answer)
    assert unwanted.score(answer).label is Label.WRONG


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("a != b", "a = b"),
        ("a = b", "a != b"),
        ("a < b", "a <= b"),
        ("a < b", "a > b"),
        ("> 5", "< 5"),
        ("> 5", "5"),
        ("≥ 5", "> 5"),
        ("x*y = 6", "x/y = 6"),
        ("x*y = 6", "x y = 6"),
        ("x y = 6", "x * y = 6"),
        ("x = 3", "x = ±3"),
        ("x = 3", "x = √3"),
        ("1/2", "1 2"),
        ("1/2", "11/2"),
        ("11/2", "1½"),
        ("A → B", "A ← B"),
        ("5 ₹", "5 ¥"),
        ("Great 👍", "Great 👎"),
        ("C#", "C"),
        ("C", "C#"),
        ("C", "C++"),
    ],
)
def test_answers_that_differ_in_symbols(reference: str, answer: str) -> None:
    for scorer in ("normalised", "contains"):
        assert make_scorer(scorer, reference).score(answer).label is Label.WRONG, scorer
    unwanted = make_scorer({"name": "contains", "not": reference}, answer)
    assert unwanted.score(answer).label is Label.RIGHT


def test_a_symbol_of_the_same_kind_counts_beside_the_right_one() -> None:
    for reference, answer in (("Great 👍", "Great 👍👎"), ("5 ₹", "¥5 ₹")):
        assert make_scorer("normalised", reference).score(answer).label is Label.WRONG


@pytest.mark.parametrize("sign", ["*", "/", "©", "™", "=", "#"])
def test_a_phrase_that_is_a_sign_is_found_in_a_text(sign: str) -> None:
    assert make_scorer("contains", sign).score(f"It is a {sign} b.").label is Label.RIGHT


@pytest.mark.parametrize("answer", ["我用C#编程", "He uses C#."])
def test_a_name_with_a_number_sign_is_found_in_a_sentence(answer: str) -> None:
    assert make_scorer("contains", "C#").score(answer).label is Label.RIGHT
    assert make_scorer("contains", "C").score(answer).label is Label.WRONG


def test_f1_is_a_fraction() -> None:
    assert make_scorer("f1", "a b c d").score("a b").value == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("spec", "reference"),
    [
        ("nope", "x"),
        ({"tolerance": 1}, "x"),
        ("exact", 4),
        ("exact", []),
        ("numeric", "none"),
        ("numeric", True),
        ("numeric", float("nan")),
        ("regex", "("),
        ("regex", ""),
        ("contains", ["a", ""]),
        ("starts_with", ""),
        ({"name": "ends_with", "strip": True}, ["a", "..."]),
        ("json", [math.nan]),
        ("json", "NaN"),
        ("json", "{"),
        ({"name": "json", "schema": {"type": "nonsense"}}, None),
        ({"name": "f1", "typo": 1}, "x"),
        ({"name": "f1", "threshold": 10**400}, "x"),
        ({"name": "numeric", "tolerance": None}, 1),
        ({"name": "numeric", "relative": "1%"}, 1),
        ({"name": "numeric", "tolerance": -1}, 1),
        ({"name": "regex", "case_sensitive": "no"}, "x"),
        ({"name": "regex", "full": 1}, "x"),
        ({"name": "contains", "not": 5}, "x"),
        ({"name": "contains", "not": ["a", None]}, "x"),
        ({"name": "safety", "ban": [5]}, None),
        ({"name": "safety", "ban": "kill"}, None),
        ({"name": "pii", "allow": "a@b.c"}, None),
        ({"name": "latency"}, 10**400),
        ({"name": "all", "of": [{"scorer": 5, "reference": "x"}]}, None),
    ],
)
def test_a_scorer_that_cannot_work_is_refused_when_loaded(spec: Any, reference: Any) -> None:
    with pytest.raises(ConfigurationError):
        make_scorer(spec, reference)


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@given(st.text(max_size=60))
def test_no_scorer_raises_on_any_answer(answer: str) -> None:
    for spec, reference in (("numeric", 1), ("json", "{}"), ("f1", "a"), ("contains", "a")):
        assert make_scorer(spec, reference).score(answer).value is not None


def test_unscored_is_not_wrong() -> None:
    score = Score.unscored("HTTP 500")
    assert (score.value, score.label, score.reason) == (None, Label.UNSCORED, "HTTP 500")
