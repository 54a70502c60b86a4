"""Real rewordings of the support questions, and near misses with other answers.

rewordings.toml adds wordings to those in knowledge/: `trained` ones taught the demo model, it has
not seen the others. Whoever needs one list of wordings takes `Reworded.wordings`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golden_datasets.support.knowledge import Knowledge, fill, read_knowledge, slot_names

MOST_FILLINGS = 4
FILE = Path(__file__).with_name("rewordings.toml")


@dataclass(frozen=True, slots=True)
class Reworded:
    """One question in several wordings that have one answer.

    Attributes:
        intent: The intent in knowledge/.
        answer: The answer, slots filled.
        trained: Wordings that the demo model was trained with.
        unseen: Wordings that it was not trained with.
    """

    intent: str
    answer: str
    trained: tuple[str, ...]
    unseen: tuple[str, ...]

    @property
    def wordings(self) -> tuple[str, ...]:
        """All wordings."""
        return self.trained + self.unseen


@dataclass(frozen=True, slots=True)
class NearMissQuestion:
    """A question that shares words with those of the intent `like` and has another answer."""

    like: str
    text: str
    answer: str


def read_rewordings() -> list[Reworded]:
    """Return the questions, each with its wordings in knowledge/ and rewordings.toml."""
    knowledge = read_knowledge()
    return [_reworded(knowledge, entry) for entry in _read()["question"]]


def read_near_misses() -> list[NearMissQuestion]:
    """Return the near misses."""
    knowledge = read_knowledge()
    return [
        NearMissQuestion(entry["like"], entry["text"], _answer(knowledge, entry))
        for entry in _read()["near_miss"]
    ]


def _reworded(knowledge: Knowledge, entry: Mapping[str, Any]) -> Reworded:
    questions = knowledge.intents[entry["intent"]].questions
    filling = _filling(knowledge, entry)
    held_out = [fill(text, filling) for text in questions.held_out]
    return Reworded(
        intent=entry["intent"],
        answer=_answer(knowledge, entry),
        trained=tuple(fill(text, filling) for text in questions.train),
        unseen=(*held_out, *entry["wordings"]),
    )


def _answer(knowledge: Knowledge, entry: Mapping[str, Any]) -> str:
    return fill(knowledge.intents[entry["intent"]].answer, _filling(knowledge, entry))


def _filling(knowledge: Knowledge, entry: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    named = {slot: knowledge.find(slot, name) for slot, name in entry.get("slots", {}).items()}
    return named | {"city_count": knowledge.slots["city_count"][0]}


def _read() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def read_all_wordings() -> list[tuple[str, str]]:
    """Return every wording of every question that names no order or person, with its answer.

    Questions with slots are filled with MOST_FILLINGS values each, and with those in
    rewordings.toml.
    """
    knowledge = read_knowledge()
    pairs = {text: q.answer for q in read_rewordings() for text in q.wordings}
    pairs |= {miss.text: miss.answer for miss in read_near_misses()}
    for intent in knowledge.intents.values():
        slots = slot_names(*intent.questions.train, intent.answer) - {"city_count"}
        if slots & {"order", "name"} or len(slots) > 1:
            continue
        wordings = intent.questions.train + intent.questions.held_out
        for filling in _fillings(knowledge, slots):
            answer = fill(intent.answer, filling)
            pairs |= {fill(text, filling): answer for text in wordings}
    return sorted(pairs.items())


def _fillings(knowledge: Knowledge, slots: set[str]) -> list[dict[str, Mapping[str, str]]]:
    city_count = {"city_count": knowledge.slots["city_count"][0]}
    if not slots:
        return [city_count]
    (slot,) = slots
    return [city_count | {slot: value} for value in knowledge.slots[slot][:MOST_FILLINGS]]
