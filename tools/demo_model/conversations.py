"""Training conversations: random wordings, slots, frames, stories and turns, all from `train`."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace

from golden_datasets.support.knowledge import (
    Filling,
    Form,
    Intent,
    Knowledge,
    fill,
    frame,
    name_keys,
    slot_names,
)
from tools.demo_model.variation import Varier

MAX_FEW_SECTIONS = 3


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the customer and the answer to it."""

    user: str
    assistant: str


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """A system prompt, and whether it has a JSON rule; the text "" means no prompt."""

    text: str
    wants_json: bool


Conversation = tuple[Turn, ...]


class Writer:
    """Draws system prompts and conversations, deterministically per seed."""

    def __init__(self, knowledge: Knowledge, seed: int) -> None:
        self._knowledge = knowledge
        self._rng = random.Random(seed)
        self._varier = Varier(knowledge, self._rng)
        self._intents = list(knowledge.intents.values())
        self._with_follow_up = [i for i in self._intents if i.follow_ups.train]

    def system_prompt(self, is_long: bool) -> SystemPrompt:
        """Return a random prompt: a long one has many or all sections, others a few or none."""
        rng = self._rng
        if not is_long and rng.random() < 0.1:
            return SystemPrompt("", wants_json=False)
        parts = [self._knowledge.roles[0] if rng.random() < 0.2 else self._choose_role()]
        parts += self._choose_sections(is_long)
        wants_json = rng.random() < 0.55
        if wants_json:
            rule = rng.choice(self._knowledge.json_rules.train)
            parts.insert(rng.randint(0, len(parts)), rule)
        return SystemPrompt(rng.choice(("\n", " ", "\n\n")).join(parts), wants_json)

    def conversation(self, wants_json: bool) -> Conversation:
        """Return one conversation that fits a prompt with or without a JSON rule."""
        draw = self._rng.random()
        if draw < 0.3:
            return (self._extraction(wants_json),)
        if draw < 0.4:
            return self._carried()
        if draw < 0.47:
            return (*self._unrelated(wants_json), self._framed(self._question()))
        if draw < 0.55:
            return (self._told(self._question()),)
        return (self._framed(self._question()),)

    def _choose_role(self) -> str:
        return self._rng.choice(self._knowledge.roles)

    def _choose_sections(self, is_long: bool) -> list[str]:
        sections, rng = self._knowledge.sections, self._rng
        if not is_long:
            return rng.sample(sections, rng.randint(0, MAX_FEW_SECTIONS))
        if rng.random() < 0.5:
            return list(sections)
        return rng.sample(sections, rng.randint(MAX_FEW_SECTIONS + 1, len(sections)))

    def _question(self) -> Turn:
        return self._ask(self._rng.choice(self._intents))

    def _ask(self, intent: Intent) -> Turn:
        text = self._varier.vary_template(self._rng.choice(intent.questions.train))
        filling = self._draw(text, intent.answer)
        return Turn(fill(text, filling), fill(intent.answer, filling))

    def _draw(self, *templates: str) -> Filling:
        drawn = self._knowledge.draw(self._rng, slot_names(*templates))
        return self._varier.vary_filling(drawn)

    def _extraction(self, wants_json: bool) -> Turn:
        rng, form = self._rng, self._rng.choice(self._knowledge.forms)
        text = self._varier.vary_template(rng.choice(form.messages.train))
        # Listed values only: a model this small picks known values and cannot copy new ones.
        filling = self._knowledge.draw(rng, slot_names(text))
        request = self._varier.vary_template(rng.choice(self._knowledge.requests.train))
        request = request.replace("{keys}", name_keys(form))
        message = rng.choice(('"{}"', "{}", "'{}'", "\n{}", "\n\n{}")).format(fill(text, filling))
        values = {key: filling[key]["name"] for key in form.keys}
        return Turn(request + message, write_extraction(form, values, wants_json))

    def _carried(self) -> Conversation:
        """Return turns whose last question relies on an earlier one for the order number."""
        rng, knowledge = self._rng, self._knowledge
        filling = knowledge.draw(rng, ["order"])
        announcement = self._varier.vary_template(rng.choice(knowledge.announcements.train))
        turns = [self._announce(announcement, filling)]
        if rng.random() < 0.3:
            filling = knowledge.draw(rng, ["order"])
            turns.append(self._announce(rng.choice(knowledge.corrections.train), filling))
        for intent in rng.sample(self._with_follow_up, rng.randint(1, 2)):
            text = self._varier.vary_template(rng.choice(intent.follow_ups.train))
            turns.append(self._framed(Turn(text, fill(intent.answer, filling))))
        return tuple(turns)

    def _announce(self, template: str, filling: Filling) -> Turn:
        return Turn(fill(template, filling), fill(self._knowledge.acknowledgement, filling))

    def _unrelated(self, wants_json: bool) -> Conversation:
        if self._rng.random() < 0.2:
            return (self._extraction(wants_json),)
        return tuple(self._question() for _ in range(self._rng.randint(1, 2)))

    def _told(self, turn: Turn) -> Turn:
        story = self._rng.choices(self._knowledge.story.train, k=self._rng.randint(2, 24))
        return replace(turn, user=" ".join([*story, turn.user]))

    def _framed(self, turn: Turn) -> Turn:
        text, draw = turn.user, self._rng.random()
        if draw < 0.3:
            text = frame(self._rng.choice(self._knowledge.polite.train), text)
        elif draw < 0.5:
            text = frame(self._rng.choice(self._knowledge.special.train), text)
        elif draw < 0.6:
            text = text.rstrip(".?!")
        elif draw < 0.65:
            text = text[0].lower() + text[1:]
        return replace(turn, user=text)


def write_extraction(form: Form, values: dict[str, str], wants_json: bool) -> str:
    """Return the extracted values as one JSON object, or as the form's prose."""
    if wants_json:
        return json.dumps(values, ensure_ascii=False)
    return fill(form.prose, {key: {"name": value} for key, value in values.items()})
