"""Items of the golden dataset `support`, slice by slice, drawn from the held-out wordings."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from golden_datasets.support.knowledge import (
    Filling,
    Intent,
    Knowledge,
    Pair,
    Question,
    fill,
    frame,
    name_keys,
    slot_names,
)

EXACT_REPEAT = "exact-repeat"
PARAPHRASE = "paraphrase"
MULTI_TURN = "multi-turn"
LONG_PROMPT = "long-prompt"
SPECIAL_CHARACTERS = "special-characters"
EXTRACTION = "extraction"
NEAR_MISS = "near-miss"

NUM_REPEATS = 40
NUM_CARRIED = 24
NUM_CORRECTED = 12
NUM_SWITCHED = 14
NUM_STORIES = 36
NUM_SPECIAL_A_FRAME = 2
NUM_EXTRACTIONS_A_WORDING = 4
STORY_SENTENCES = (10, 40)

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Item:
    """One line of support.jsonl; golden_datasets/README.md defines the fields."""

    id: str
    messages: tuple[Message, ...]
    reference: str
    scorer: str
    tags: tuple[str, ...]
    cluster_id: str


@dataclass(frozen=True, slots=True)
class PairOfItems:
    """One line of pairs.jsonl: two items by id, and whether one answer serves both."""

    left: str
    right: str
    kind: str
    same_answer: bool


@dataclass(frozen=True, slots=True)
class Dataset:
    """All items and pairs, in file order."""

    items: tuple[Item, ...]
    pairs: tuple[PairOfItems, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question with its answer, before it becomes an item."""

    text: str
    answer: str
    intent: Intent

    @property
    def scorer(self) -> str:
        # A fixed answer may differ in case and spaces; a copied number or name may not.
        return "exact" if slot_names(self.intent.answer) else "normalised"


class Author:
    """Draws the slices; the same seed draws the same items."""

    def __init__(self, knowledge: Knowledge, seed: str) -> None:
        self._knowledge = knowledge
        self._rng = random.Random(seed)

    def dataset(self) -> Dataset:
        """Return all slices; near misses come with their pairs."""
        paraphrases = list(self._paraphrases())
        near_misses, pairs = self._near_misses()
        slices = [
            (PARAPHRASE, paraphrases),
            (MULTI_TURN, [*self._carried(), *self._corrected(), *self._switched()]),
            (LONG_PROMPT, list(self._long_prompts())),
            (SPECIAL_CHARACTERS, list(self._special_characters())),
            (EXTRACTION, list(self._extractions())),
            (NEAR_MISS, near_misses),
        ]
        slices.append(
            (EXACT_REPEAT, self._repeats([item for _, drafts in slices for item in drafts]))
        )
        items = [
            Item(
                f"{tag}-{number:03}",
                item.messages,
                item.reference,
                item.scorer,
                (tag,),
                item.cluster_id,
            )
            for tag, drafts in slices
            for number, item in enumerate(drafts, start=1)
        ]
        return Dataset(tuple(items), tuple(pairs))

    def _paraphrases(self) -> Iterator[Item]:
        for intent in self._knowledge.intents.values():
            for text in intent.questions.held_out:
                asked = self._ask(intent, text)
                yield self._item([asked.text], asked)

    def _repeats(self, items: list[Item]) -> list[Item]:
        return self._rng.sample(items, NUM_REPEATS)

    def _carried(self) -> Iterator[Item]:
        """Yield conversations whose last question takes its order number from the first turn."""
        for _ in range(NUM_CARRIED):
            filling = self._knowledge.draw(self._rng, ["order"])
            yield self._follow_up([self._announce(filling)], filling)

    def _corrected(self) -> Iterator[Item]:
        """Yield conversations in which the customer corrects the order number."""
        for _ in range(NUM_CORRECTED):
            announced = self._announce(self._knowledge.draw(self._rng, ["order"]))
            filling = self._knowledge.draw(self._rng, ["order"])
            correction = self._rng.choice(self._knowledge.corrections.held_out)
            acknowledged = fill(self._knowledge.acknowledgement, filling)
            yield self._follow_up([announced, (fill(correction, filling), acknowledged)], filling)

    def _switched(self) -> Iterator[Item]:
        """Yield conversations whose last question is about something else."""
        for _ in range(NUM_SWITCHED):
            first, last = (self._ask_any() for _ in range(2))
            yield self._item([first.text, first.answer, last.text], last)

    def _announce(self, filling: Filling) -> tuple[str, str]:
        announcement = self._rng.choice(self._knowledge.announcements.held_out)
        return fill(announcement, filling), fill(self._knowledge.acknowledgement, filling)

    def _follow_up(self, turns: list[tuple[str, str]], filling: Filling) -> Item:
        able = [i for i in self._knowledge.intents.values() if i.follow_ups.held_out]
        intent = self._rng.choice(able)
        text = self._rng.choice(intent.follow_ups.held_out)
        asked = _Asked(text, fill(intent.answer, filling), intent)
        return self._item([*(text for turn in turns for text in turn), text], asked)

    def _long_prompts(self) -> Iterator[Item]:
        for _ in range(NUM_STORIES):
            asked = self._ask_any()
            num_sentences = self._rng.randint(*STORY_SENTENCES)
            story = self._rng.sample(self._knowledge.story.held_out, num_sentences)
            yield self._item([" ".join([*story, asked.text])], asked)

    def _special_characters(self) -> Iterator[Item]:
        for template in self._knowledge.special.held_out:
            for _ in range(NUM_SPECIAL_A_FRAME):
                asked = self._ask_any()
                yield self._item([frame(template, asked.text)], asked)

    def _extractions(self) -> Iterator[Item]:
        for form in self._knowledge.forms:
            for number, text in enumerate(form.messages.held_out, start=1):
                for _ in range(NUM_EXTRACTIONS_A_WORDING):
                    filling = self._knowledge.draw(self._rng, slot_names(text))
                    request = self._rng.choice(self._knowledge.requests.held_out)
                    question = (
                        f'{request.replace("{keys}", name_keys(form))}"{fill(text, filling)}"'
                    )
                    values = {key: filling[key]["name"] for key in form.keys}
                    yield Item(
                        "",
                        self._messages([question]),
                        json.dumps(values, ensure_ascii=False),
                        "json",
                        (),
                        # Variants of a question here differ in wording, not in the kind of message.
                        f"{form.id}-{number}",
                    )

    def _near_misses(self) -> tuple[list[Item], list[PairOfItems]]:
        items: list[Item] = []
        pairs: list[PairOfItems] = []
        for pair in self._knowledge.pairs:
            items += self._sides(pair)
            left, right = (f"{NEAR_MISS}-{number:03}" for number in (len(items) - 1, len(items)))
            pairs.append(PairOfItems(left, right, pair.kind, pair.same_answer))
        return items, pairs

    def _sides(self, pair: Pair) -> Iterator[Item]:
        """Yield both items of a pair; a slot they share gets the same value."""
        needed = self._needed(pair.left) | self._needed(pair.right)
        alike = self._knowledge.draw(self._rng, needed)
        for side in (pair.left, pair.right):
            fixed = {slot: self._knowledge.find(slot, name) for slot, name in side.slots.items()}
            asked = self._fill(self._knowledge.intents[side.intent], side.text, {**alike, **fixed})
            yield self._item([asked.text], asked)

    def _needed(self, question: Question) -> set[str]:
        return slot_names(question.text, self._knowledge.intents[question.intent].answer)

    def _ask_any(self) -> _Asked:
        intent = self._rng.choice(list(self._knowledge.intents.values()))
        return self._ask(intent, self._rng.choice(intent.questions.held_out))

    def _ask(self, intent: Intent, text: str) -> _Asked:
        return self._fill(
            intent, text, self._knowledge.draw(self._rng, slot_names(text, intent.answer))
        )

    def _fill(self, intent: Intent, text: str, filling: Filling) -> _Asked:
        return _Asked(fill(text, filling), fill(intent.answer, filling), intent)

    def _item(self, texts: list[str], asked: _Asked) -> Item:
        messages = self._messages(texts)
        return Item("", messages, asked.answer, asked.scorer, (), asked.intent.id)

    def _messages(self, texts: list[str]) -> tuple[Message, ...]:
        roles = ("user", "assistant")
        return tuple(
            {"role": roles[index % 2], "content": text} for index, text in enumerate(texts)
        )
