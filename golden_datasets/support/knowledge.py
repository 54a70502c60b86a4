"""The knowledge of the fictional shop Fennwick: intents, slots, frames and pairs, from knowledge/.

The demo model is trained on the `train` wordings and the golden dataset uses the `held_out` ones,
so both start here and neither sees the other's.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "knowledge"
INTENT_FILES = ("account", "orders", "billing", "products")
SLOT_FILE = "slots"

# The value of one slot: its fields, including `name`.
Filling = Mapping[str, Mapping[str, str]]

_SLOT = re.compile(r"\{(\w+)(?:\.(\w+))?\}")
_WORD = re.compile(r"[\w{}]+")


@dataclass(frozen=True, slots=True)
class Wordings:
    """Wordings of one thing, separate for training and for the dataset."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Intent:
    """One thing customers ask, and its single answer.

    `follow_ups` ask the same without the slot, which an earlier turn named.
    """

    id: str
    answer: str
    questions: Wordings
    follow_ups: Wordings


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of message whose details can be extracted, as JSON or in prose."""

    id: str
    keys: tuple[str, ...]
    prose: str
    messages: Wordings


@dataclass(frozen=True, slots=True)
class Question:
    """One side of a pair: a text with the intent it stands for and fixed slots, if any."""

    intent: str
    text: str
    slots: Mapping[str, str]

    def template(self) -> str:
        """Return the text with its fixed slots as placeholders again."""
        text = self.text
        for slot, value in self.slots.items():
            text = text.replace(value, "{" + slot + "}")
        return text


@dataclass(frozen=True, slots=True)
class Pair:
    """Two questions that share most words; `same_answer`: whether one answer serves both."""

    kind: str
    same_answer: bool
    left: Question
    right: Question


@dataclass(frozen=True, slots=True)
class Variation:
    """Sources of variation for training texts: interchangeable phrases, parts of values."""

    phrases: tuple[tuple[str, ...], ...]
    first_names: tuple[str, ...]
    last_names: tuple[str, ...]
    syllables: tuple[str, ...]
    degrees: tuple[str, ...]
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Everything in knowledge/, in file order."""

    intents: Mapping[str, Intent]
    slots: Mapping[str, tuple[Mapping[str, str], ...]]
    forms: tuple[Form, ...]
    requests: Wordings
    polite: Wordings
    special: Wordings
    story: Wordings
    acknowledgement: str
    announcements: Wordings
    corrections: Wordings
    pairs: tuple[Pair, ...]
    roles: tuple[str, ...]
    sections: tuple[str, ...]
    json_rules: Wordings
    variation: Variation

    def held_out(self) -> frozenset[str]:
        """Return every text reserved for the dataset, reduced to its `letters`."""
        wordings = [
            *(intent.questions for intent in self.intents.values()),
            *(intent.follow_ups for intent in self.intents.values()),
            *(form.messages for form in self.forms),
            *(self.requests, self.story, self.announcements, self.corrections, self.json_rules),
        ]
        texts = [text for w in wordings for text in w.held_out]
        texts += [side.template() for pair in self.pairs for side in (pair.left, pair.right)]
        return frozenset(letters(text) for text in texts)

    def draw(self, rng: random.Random, names: Iterable[str]) -> Filling:
        """Return a random filling of the named slots; an order number is five digits."""
        return {name: self._draw_one(rng, name) for name in sorted(set(names))}

    def find(self, slot: str, name: str) -> Mapping[str, str]:
        """Return the listed value of `slot` that has that name, or a bare one for an order."""
        if slot == "order":
            return {"name": name}
        return next(value for value in self.slots[slot] if value["name"] == name)

    def _draw_one(self, rng: random.Random, name: str) -> Mapping[str, str]:
        if name == "order":
            return {"name": str(rng.randrange(10_000, 100_000))}
        return rng.choice(self.slots[name])


def slot_names(*templates: str) -> set[str]:
    """Return the names of the slots that the templates need."""
    return {match[1] for template in templates for match in _SLOT.finditer(template)}


def fill(template: str, filling: Filling) -> str:
    """Return the template with `{slot}` and `{slot.field}` replaced.

    Raises:
        KeyError: If the filling lacks a slot or field.
    """
    return _SLOT.sub(lambda match: filling[match[1]][match[2] or "name"], template)


def letters(text: str) -> str:
    """Return the words of a text or template in lower case, ignoring punctuation and layout."""
    return " ".join(_WORD.findall(text.lower()))


def frame(template: str, question: str) -> str:
    """Return `question` set into a frame such as "Hi, {q}"."""
    return template.replace("{q}", question)


def name_keys(form: Form) -> str:
    """Return the form's keys as a person lists them: "order, product and problem"."""
    return ", ".join(form.keys[:-1]) + " and " + form.keys[-1]


@cache
def read_knowledge() -> Knowledge:
    """Return the content of knowledge/."""
    extraction = _read("extraction")
    frames = _read("frames")
    dialogue = _read("dialogue")
    prompts = _read("system_prompts")
    intents = [_intent(entry) for file in INTENT_FILES for entry in _read(file)["intent"]]
    return Knowledge(
        intents={intent.id: intent for intent in intents},
        slots=_slots(_read(SLOT_FILE), extraction),
        forms=tuple(_form(entry) for entry in extraction["form"]),
        requests=_wordings(extraction, "request_"),
        polite=_wordings(frames["polite"]),
        special=_wordings(frames["special"]),
        story=_wordings(frames["story"]),
        acknowledgement=dialogue["acknowledgement"],
        announcements=_wordings(dialogue["announcement"]),
        corrections=_wordings(dialogue["correction"]),
        pairs=tuple(_pair(entry) for entry in _read("near_miss")["pair"]),
        roles=tuple(prompts["role"]),
        sections=tuple(prompts["section"]),
        json_rules=Wordings(tuple(prompts["json_rule"]), tuple(prompts["json_rule_held_out"])),
        variation=_variation(_read("rewrites")),
    )


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def _wordings(entry: Mapping[str, Any], prefix: str = "") -> Wordings:
    return Wordings(
        tuple(entry.get(f"{prefix}train", ())), tuple(entry.get(f"{prefix}held_out", ()))
    )


def _intent(entry: Mapping[str, Any]) -> Intent:
    return Intent(entry["id"], entry["answer"], _wordings(entry), _wordings(entry, "follow_up_"))


def _form(entry: Mapping[str, Any]) -> Form:
    return Form(entry["id"], tuple(entry["keys"]), entry["prose"], _wordings(entry))


def _pair(entry: Mapping[str, Any]) -> Pair:
    sides = [
        Question(side["intent"], side["text"], side.get("slots", {}))
        for side in (entry["left"], entry["right"])
    ]
    return Pair(entry["kind"], entry["same_answer"], *sides)


def _variation(entry: Mapping[str, Any]) -> Variation:
    return Variation(
        phrases=tuple(tuple(group) for group in entry["group"]),
        first_names=tuple(entry["first_name"]),
        last_names=tuple(entry["last_name"]),
        syllables=tuple(entry["syllable"]),
        degrees=tuple(entry["degree"]),
        faults=tuple(entry["fault"]),
    )


def _slots(
    listed: Mapping[str, Any], extraction: Mapping[str, Any]
) -> dict[str, tuple[Mapping[str, str], ...]]:
    slots = {name: tuple(values) for name, values in listed.items() if isinstance(values, list)}
    slots["city_count"] = ({"name": listed["city_count"]},)
    for name in ("problem", "day"):
        slots[name] = tuple({"name": value} for value in extraction[name])
    return slots
