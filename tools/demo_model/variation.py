"""Varies training texts: swaps phrases, drops words, and makes up values to be copied.

A small model that sees few wordings memorises whole sentences. Interchangeable phrases and missing
words make it attend to the words that matter; values it cannot know make it copy.
"""

from __future__ import annotations

import random
import re

from golden_datasets.support.knowledge import Filling, Knowledge, letters

EXCHANGE_RATIO = 0.7
DROPPING_RATIO = 0.25
DROPPED_WORDS_RATIO = 0.15


class Varier:
    """Varies templates and fillings; never returns a held-out wording."""

    def __init__(self, knowledge: Knowledge, rng: random.Random) -> None:
        self._rng = rng
        self._source = knowledge.variation
        self._held_out = knowledge.held_out()
        self._groups = [(_any_of(group), group) for group in self._source.phrases]

    def vary_template(self, template: str) -> str:
        """Return the template reworded, with its slots intact."""
        text = template
        for pattern, group in self._groups:
            if self._rng.random() < EXCHANGE_RATIO and (found := pattern.search(text)):
                phrase = _like(found[0], self._rng.choice(group))
                text = text[: found.start()] + phrase + text[found.end() :]
        if self._rng.random() < DROPPING_RATIO:
            text = self._drop_words(text)
        return template if letters(text) in self._held_out else text

    def vary_filling(self, filling: Filling) -> Filling:
        """Return the filling with a made-up name and fault instead of the listed ones."""
        varied = dict(filling)
        if "name" in varied:
            varied["name"] = {"name": self._make_name()}
        if "problem" in varied:
            varied["problem"] = {"name": self._make_fault()}
        return varied

    def _drop_words(self, text: str) -> str:
        words = text.split(" ")
        kept = [w for w in words if "{" in w or self._rng.random() >= DROPPED_WORDS_RATIO]
        return " ".join(kept) if kept else text

    def _make_name(self) -> str:
        rng, source = self._rng, self._source
        if rng.random() < 0.5:
            return f"{rng.choice(source.first_names)} {rng.choice(source.last_names)}"
        parts = ["".join(rng.choices(source.syllables, k=rng.randint(2, 3))) for _ in range(2)]
        return " ".join(part[0].upper() + part[1:] for part in parts)

    def _make_fault(self) -> str:
        fault = self._rng.choice(self._source.faults)
        return (
            f"{self._rng.choice(self._source.degrees)} {fault}"
            if self._rng.random() < 0.5
            else fault
        )


def _any_of(phrases: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(phrases, key=len, reverse=True)
    words = "|".join(re.escape(phrase) for phrase in longest_first)
    return re.compile(rf"(?<![\w{{])(?:{words})(?![\w}}])", re.IGNORECASE)


def _like(found: str, phrase: str) -> str:
    """Return the phrase, capitalised if the replaced text is."""
    first = phrase[0].upper() if found[0].isupper() else phrase[0].lower()
    return phrase if phrase.startswith(("I ", "I'")) else first + phrase[1:]
