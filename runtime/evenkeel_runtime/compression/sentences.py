"""Split a message into sentences, and mark those that must not be dropped."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from evenkeel_runtime.text.guards import find_capitalised, find_numbers, find_stems, has_negation

# A sentence ends at a mark followed by whitespace, or at a line break, so "3.5" is not split.
SENTENCE_END = re.compile(r"(?<![.!?])[.!?]+\s+|\n+")
# Code, data, quotes and addresses are meaningless if cut in half.
_WHOLE = re.compile(
    r"```|~~~|^[ \t]*[{\[<|]|^[ \t]*(?:def|class|import|SELECT)\b|https?://|`", re.MULTILINE
)
_INSTRUCTION = re.compile(
    r"\b(?:must|should|shall|always|only|need to|have to|make sure|ensure|please|remember|note|"
    r"important|required|require|instead|prefer|avoid|use|answer|respond|reply|write|format|never|"
    r"don't|do not|from now on|call me|i want|i prefer|i like|i need|keep|ignore|focus|step)\b",
    re.IGNORECASE,
)
# Frequent words that are rare in other languages; they are a seventh of English text. "My" and
# "has", say, are as frequent in Czech and Spanish.
_ENGLISH = frozenset(
    "the and you your that this these those with they them their there would could should about "
    "from what which when where who how our i'm it's don't didn't can't".split()
)
_LEAST_ENGLISH = 1 / 16
# One alone may be of a title, or another word of another language.
_LEAST_WORDS = 2
_LETTERS = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, including the whitespace after it.

    Attributes:
        must_stay: Whether it contains a number, name, instruction, negation or question, or cannot
            be judged because it is not English.
        stems: Stems of its content words.
    """

    text: str
    must_stay: bool
    stems: frozenset[str]


def split_message(text: str) -> list[Sentence]:
    """Return the sentences of a message; a single one if it cannot be split.

    Joining them gives the message back.
    """
    if _WHOLE.search(text) or not _is_english(text):
        return [Sentence(text, True, find_stems(text))]
    ends = [match.end() for match in SENTENCE_END.finditer(text)]
    parts = [text[a:b] for a, b in pairwise([0, *ends, len(text)]) if b > a]
    return [Sentence(part, _must_stay(part), find_stems(part)) for part in parts]


def _must_stay(part: str) -> bool:
    return bool(
        find_numbers(part)
        or find_capitalised(part)
        or has_negation(part)
        or "?" in part
        or is_instruction(part)
        or any(not word.replace("’", "").isascii() for word in _LETTERS.findall(part))
    )


def _is_english(text: str) -> bool:
    words = [word.lower().replace("’", "'") for word in _LETTERS.findall(text)]
    english = [word for word in words if word in _ENGLISH]
    return len(set(english)) >= _LEAST_WORDS and len(english) >= _LEAST_ENGLISH * len(words)


def is_instruction(part: str) -> bool:
    """Whether a sentence gives an instruction."""
    return _INSTRUCTION.search(part) is not None
