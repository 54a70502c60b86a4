"""What must not be cached: personal data, and questions about their asker."""

import time
import tomllib
from pathlib import Path

import pytest

from evenkeel_runtime.response_cache.private_text import MOST_ASKER_CHARS, PrivateText

LABELLED = Path(__file__).parents[3] / "fixtures" / "about_asker.toml"
PERSONAL = {
    "Write to ann.lee+x@example.org please": "email",
    "Call me at +49 30 1234567": "phone",
    "Call 555-123-4567": "phone",
    "My IBAN is DE89 3704 0044 0532 0130 00": "iban",
    "Card 4111 1111 1111 1111": "card",
    "SSN 123-45-6789": "social_security",
    "From 192.168.0.1 it fails": "ipv4",
    "Use AKIAIOSFODNN7EXAMPLE": "api_key",
    "my password is hunter2": "credential",
    "I was born in spring": "birth_date",
    "My name is Ann Lee": "own_name",
    "Send it to 12 Long Oak Street": "postal_address",
    "Ich wohne Lindenstraße 5": "postal_address",
}
HARMLESS = (
    "How do I reset my password?",
    "What is 4111 1111 1111 1112 in words?",
    "Version 1.2.3 of the manual, please.",
    "Ship 3 lamps to Austria: how much?",
    "I am unhappy and want to complain.",
)
ABOUT_ASKER = (
    "Where is my order?",
    "When do I get my refund?",
    "Show me my last invoice",
    "Can I cancel order 62265 now?",
    "Is ticket #8812 done?",
    "How long does my refund take?",
    "What does our new contract say?",
    "What is my balance? How can I top up?",
    "Where is my order? What can I do if it is late?",
    "Has my refund come, and how can I tell?",
)
GENERAL = (
    "How do I track my order?",
    "I want to end my membership.",
    "Where can I see my invoices?",
    "What is your return policy?",
    "Do you have a shop in Berlin?",
)


@pytest.mark.parametrize("text", PERSONAL)
def test_personal_data_is_found(text: str) -> None:
    assert PrivateText().find_personal(text) == PERSONAL[text]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_not_personal_is_kept(text: str) -> None:
    assert PrivateText().find_personal(text) is None


@pytest.mark.parametrize("text", ABOUT_ASKER)
def test_a_question_about_its_asker_is_told(text: str) -> None:
    assert PrivateText().is_about_asker(text)


@pytest.mark.parametrize("text", GENERAL)
def test_a_question_for_everybody_is_told(text: str) -> None:
    assert not PrivateText().is_about_asker(text)


def test_nothing_that_depends_on_the_asker_slips_and_hardly_anything_else_is_bypassed() -> None:
    labelled = tomllib.loads(LABELLED.read_text(encoding="utf-8"))
    is_about_asker = PrivateText().is_about_asker
    assert len(labelled["depends"]) >= 150 and len(labelled["general"]) >= 100
    assert [text for text in labelled["depends"] if not is_about_asker(text)] == []
    needlessly = [text for text in labelled["general"] if is_about_asker(text)]
    assert len(needlessly) <= 0.05 * len(labelled["general"]), needlessly


def test_words_of_the_house_are_added() -> None:
    assert not PrivateText().is_about_asker("I want my boat.")
    assert PrivateText(["boat"]).is_about_asker("I want my boat.")


@pytest.mark.parametrize(
    "part",
    ["a", "a.", "know ", "can i ", "how do i ", "1 ", "my  ", "eyJ-", "A a ", "sk_", "@a", "(1"],
)
def test_a_long_text_takes_no_long_time(part: str) -> None:
    text = part * (64 * 1024 // len(part))
    started = time.process_time()
    PrivateText().find_personal(text)
    PrivateText().is_about_asker(text)
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    "part", ["!", ".", "?,", " ", "\n", "…-", "! ", "order ", "hi,", "hi" + "!" * 9]
)
def test_a_run_of_punctuation_takes_no_long_time(part: str) -> None:
    """Four times as much takes about four times as long, and not sixteen times."""

    def took_s(num_chars: int) -> float:
        text = "I order" + part * (num_chars // len(part))
        started = time.process_time()
        assert PrivateText().is_about_asker(text)
        return time.process_time() - started

    assert took_s(40_000) < 9 * max(took_s(10_000), 0.05)


def test_lines_are_judged_one_by_one() -> None:
    is_any_about_asker = PrivateText().is_any_about_asker
    assert not is_any_about_asker([])
    assert not is_any_about_asker(["", *GENERAL])
    assert is_any_about_asker([*GENERAL, ABOUT_ASKER[0]])
    assert is_any_about_asker([*GENERAL, "Is ticket #8812 done?"])


def test_more_lines_with_the_asker_than_can_be_judged_are_about_them() -> None:
    is_any_about_asker = PrivateText().is_any_about_asker
    line = GENERAL[0]
    most = MOST_ASKER_CHARS // len(line)
    assert not is_any_about_asker([line] * most)
    assert is_any_about_asker([line] * (most + 1))
    assert not is_any_about_asker([line, "What is your return policy? " * MOST_ASKER_CHARS])


ORDINARY = "The quick brown fox returns an item. "
CRAFTED = (
    "get me ",
    "know ",
    "how much ",
    "what is my ",
    "my a ",
    "in my a ",
    "if i ",
    "is there you ",
    "get me 1\n",
    "know\n",
    "123\n",
    "a\n",
)


def judge_for_s(start: str, part: str, num_chars: int) -> float:
    """Return the CPU seconds that the lines of a text take, at least: others share its caches."""
    lines = (start + part * (num_chars // len(part))).split("\n")
    judge = PrivateText().is_any_about_asker
    took_s = []
    for _ in range(3):
        started = time.process_time()
        judge(lines)
        took_s.append(time.process_time() - started)
    return min(took_s)


@pytest.mark.parametrize("start", ["", "can i ", "how do i "])
@pytest.mark.parametrize("part", CRAFTED)
def test_no_text_up_to_the_limit_of_a_body_takes_much_longer_than_an_ordinary_one(
    part: str, start: str
) -> None:
    ordinary_s = judge_for_s("", ORDINARY, 400_000)
    assert judge_for_s(start, part, 400_000) < 8 * max(ordinary_s, 0.05)


@pytest.mark.parametrize(("start", "part"), [("", "get me "), ("can i ", "know ")])
def test_a_gap_between_two_words_is_not_tried_from_each_place(start: str, part: str) -> None:
    ordinary_s = judge_for_s("", "The quick brown fox, I think. ", MOST_ASKER_CHARS - 100)
    assert judge_for_s(start, part, MOST_ASKER_CHARS - 100) < 10 * max(ordinary_s, 0.005)
