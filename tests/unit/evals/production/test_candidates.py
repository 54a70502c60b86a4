"""Production failures become candidates: scrubbed, deduplicated, accepted only by a person."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from evenkeel.errors import ConfigurationError
from evenkeel_evals.dataset.dataset import Dataset, load_dataset
from evenkeel_evals.production.candidates import CandidateFile, ProductionFailure, read_turns
from evenkeel_evals.production.duplicates import KnownQuestions

QUESTION = "How do I reset my password?"


@pytest.fixture
def items(tmp_path: Path) -> Path:
    folder = tmp_path / "faq"
    folder.mkdir()
    row = {"id": "old", "messages": [{"role": "user", "content": QUESTION}], "reference": "x"}
    (folder / "faq.jsonl").write_text(json.dumps(row))
    (folder / "faq.toml").write_text('version = "1.0.0"\n')
    return folder / "faq.jsonl"


def dataset(items: Path) -> Dataset:
    return load_dataset(items.parent)


def failure(question: str, number: int = 1, corrected: str | None = None) -> ProductionFailure:
    return ProductionFailure(
        f"{number:032x}", (("user", question),), "An answer.", ("pii: x",), corrected
    )


@pytest.mark.parametrize(
    ("question", "how"),
    [
        pytest.param(QUESTION, "the same text", id="same"),
        pytest.param("how do I RESET my password", "the same text", id="case and punctuation"),
        pytest.param("How do I reset my passwords?", "nearly the same text", id="a letter more"),
        pytest.param("How do I change my name?", None, id="another question"),
    ],
)
def test_what_is_there_already_is_left_out(items: Path, question: str, how: str | None) -> None:
    proposal = CandidateFile(items).propose([failure(question)], dataset(items), None)
    if how is None:
        assert [c.question for c in proposal.fresh] == [question]
    else:
        assert proposal.fresh == ()
        assert how in proposal.duplicates[0][1] and "old" in proposal.duplicates[0][1]


def test_a_review_counts_for_whoever_else_asked_the_same(items: Path) -> None:
    # Three people asked the same, and one of their answers was reviewed: not the first one found.
    asked = ["What does it cost?", "what does it cost", "What does it cost today?"]
    failures = [failure(question, number) for number, question in enumerate(asked, start=1)]
    file = CandidateFile(items)
    proposal = file.propose(failures, dataset(items), None)
    (first, *_) = proposal.fresh
    second, third = (f"{number:032x}" for number in (2, 3))
    assert first.trace_id == f"{1:032x}"
    assert proposal.references({second: "9 EUR"}) == {first.id: "9 EUR"}
    assert first.id not in proposal.references({third: "8 EUR today"})
    # Of two, the newest counts; reviews of the past do for what was pending already.
    both = {second: "10 EUR", f"{1:032x}": "9 EUR"}
    assert proposal.references(both) == {first.id: "10 EUR"}
    again = CandidateFile(items).propose(failures[1:2], dataset(items), None)
    assert again.fresh == () and again.references({second: "9 EUR"}) == {first.id: "9 EUR"}


def test_words_that_differ_in_a_vowel_sign_are_different_questions() -> None:
    known = KnownQuestions(None)
    known.add("day", "दिन क्या है?")
    assert known.find("दान क्या है?") is None
    assert known.find("दिन क्या है") is not None


def test_half_a_surrogate_pair_has_a_meaning_too() -> None:
    asked: list[list[str]] = []
    known = KnownQuestions(encoder(asked))
    known.add("first", "a")
    with pytest.raises(KeyError):
        known.find("\ud800")
    assert asked == [["a", "?"]]


VECTORS = {
    **{"a": np.array([1.0, 0.0]), "b": np.array([0.99, 0.14]), "c": np.array([0.0, 1.0])},
    **{"d": np.array([0.14, 0.99]), QUESTION: np.array([-1.0, 0.0])},
}


def encoder(asked: list[list[str]]) -> Callable[[Sequence[str]], NDArray[np.float64]]:
    """Return an encoder that records its inputs, one list per call."""

    def encode_all(texts: Sequence[str]) -> NDArray[np.float64]:
        asked.append(list(texts))
        return np.stack([VECTORS[text] for text in texts])

    return encode_all


def test_meaning_is_compared_where_embeddings_are_there() -> None:
    known = KnownQuestions(encoder([]))
    known.add("first", "a")
    like = known.find("b")
    assert like is not None and (like.other_id, "meaning" in like.how) == ("first", True)
    assert known.find("c") is None
    for name in ("c", QUESTION):
        known.add(name, name)
        assert known.find("b") == like
    later = known.find("d")
    assert later is not None and later.other_id == "c"


def test_all_meanings_are_computed_in_one_go(items: Path) -> None:
    asked: list[list[str]] = []
    failures = [failure(text, number) for number, text in enumerate(["a", "b", "c", "d", "b"])]
    proposal = CandidateFile(items).propose(failures, dataset(items), encoder(asked))
    assert asked == [[QUESTION, "a", "b", "c", "d"]]
    assert [c.question for c in proposal.fresh] == ["a", "c"]
    assert len(proposal.duplicates) == 3


def test_nothing_is_embedded_where_words_decide(items: Path) -> None:
    asked: list[list[str]] = []
    file = CandidateFile(items)
    file.propose([failure(QUESTION)], dataset(items), encoder(asked))
    file.propose([], dataset(items), encoder(asked))
    assert asked == []


def test_a_question_without_end_is_compared_by_its_beginning() -> None:
    known = KnownQuestions(None)
    known.add("first", "why " * 5_000 + "a")
    began_s = time.process_time()
    like = known.find("why " * 500_000)
    assert like is not None and like.other_id == "first"
    assert time.process_time() - began_s < 10


def test_progress_is_reported_failure_by_failure(items: Path) -> None:
    said: list[tuple[str, int, int]] = []
    failures = [failure("Do you ship abroad?", 1), failure("Where is my parcel?", 2)]
    CandidateFile(items).propose(
        failures, dataset(items), None, lambda stage, done, total: said.append((stage, done, total))
    )
    assert said == [("comparing words", 1, 2), ("comparing words", 2, 2)]


def test_texts_are_scrubbed_before_they_are_written(items: Path) -> None:
    file = CandidateFile(items)
    secret = "sk-" + "a1B2" * 8
    mail = f"I am kim@example.org, key {secret}, where is my parcel?"
    proposal = file.propose([failure(mail, corrected="mail kim@example.org")], dataset(items), None)
    assert proposal.fresh[0].question == "I am [email], key [api_key], where is my parcel?"
    assert proposal.fresh[0].corrected == "mail [email]"
    written = file.path.read_text()
    assert "kim@" not in written and secret not in written


def test_a_person_accepts_and_the_item_is_there(items: Path) -> None:
    CandidateFile(items).propose([failure("Do you ship abroad?")], dataset(items), None)
    file = CandidateFile(items)
    name = file.waiting[0].id
    file.accept(name, {"reference": "Yes.", "scorer": "normalised", "tags": ["grown"]})
    found = {item.id: item for item in dataset(items).items}
    assert found[name].messages[0].content == "Do you ship abroad?"
    assert found[name].tags == ("grown",)
    assert CandidateFile(items).waiting == []
    again = CandidateFile(items).propose([failure("Do you ship abroad?")], dataset(items), None)
    assert again.fresh == ()


def test_what_was_rejected_is_not_proposed_again(items: Path) -> None:
    file = CandidateFile(items)
    name = file.propose([failure("asdf qwer")], dataset(items), None).fresh[0].id
    file.reject(name, "no question")
    assert CandidateFile(items).propose([failure("Asdf qwer!")], dataset(items), None).fresh == ()


def test_wrong_ids_and_references_change_nothing(items: Path) -> None:
    file = CandidateFile(items)
    name = file.propose([failure("Do you ship abroad?")], dataset(items), None).fresh[0].id
    before = items.read_text()
    with pytest.raises(ConfigurationError, match="no pending candidate 'x'"):
        file.accept("x", {"reference": "Yes.", "scorer": "exact", "tags": []})
    with pytest.raises(ConfigurationError, match="regular expression"):
        file.accept(name, {"reference": "(", "scorer": "regex", "tags": []})
    assert items.read_text() == before
    assert [c.id for c in CandidateFile(items).waiting] == [name]


def test_two_failures_alike_are_one_candidate(items: Path) -> None:
    failures = [failure("Do you ship abroad?", 1), failure("do you ship abroad", 2)]
    proposal = CandidateFile(items).propose(failures, dataset(items), None)
    assert (len(proposal.fresh), len(proposal.duplicates)) == (1, 1)


def test_stored_messages_are_read_without_the_system() -> None:
    stored = json.dumps(
        [
            {"role": "system", "parts": [{"type": "text", "content": "s"}]},
            {"role": "user", "parts": [{"type": "text", "content": "a"}, {"type": "blob"}]},
        ]
    )
    assert read_turns(stored) == (("user", "a"),)
    for other in ("", "{", "[1]", '{"a": 1}', '[{"role": "user"}]'):
        assert read_turns(other) == ()
