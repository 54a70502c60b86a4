"""What changed from the baseline's answers to the candidate's, item by item, with a word diff."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from evals.answers import Answer, AnsweredPair

_WORDS = re.compile(r"\s+|[^\s\w]|\w+")
# Longer answers are shown whole, without marks: the diff takes time quadratic in the words.
MAX_DIFF_WORDS = 2000


class Kind(StrEnum):
    """How an item changed; in the order of interest."""

    LOST = "lost"
    GAINED = "gained"
    UNSCORED = "unscored"
    REWORDED = "reworded"


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of an answer; `is_changed` where the other side has something else."""

    text: str
    is_changed: bool


@dataclass(frozen=True, slots=True)
class Change:
    """One item whose answers differ.

    Attributes:
        kind: lost (was right, is wrong), gained, unscored on a side, or reworded: another text
            with the same score.
        pair: The item and both answers.
        a: The baseline's answer in pieces; its error if there is no answer.
        b: The candidate's.
    """

    kind: Kind
    pair: AnsweredPair
    a: tuple[Segment, ...]
    b: tuple[Segment, ...]


def find_kind(pair: AnsweredPair) -> Kind | None:
    """Return how a pair changed, or None if it did not."""
    if not pair.is_measured:
        return Kind.UNSCORED
    if pair.a.is_right != pair.b.is_right:
        return Kind.LOST if pair.a.is_right else Kind.GAINED
    return None if pair.a.reply.text == pair.b.reply.text else Kind.REWORDED


def count_changes(pairs: Sequence[AnsweredPair]) -> dict[Kind, int]:
    """Return how many pairs changed in which way; every kind has a count."""
    kinds = [find_kind(pair) for pair in pairs]
    return {kind: kinds.count(kind) for kind in Kind}


def find_changes(pairs: Sequence[AnsweredPair], limit: int) -> list[Change]:
    """Return at most `limit` changed items: lost first, then gained, unscored and reworded."""
    order = list(Kind)
    found = [(kind, pair) for pair in pairs if (kind := find_kind(pair)) is not None]
    found.sort(key=lambda entry: (order.index(entry[0]), entry[1].item.id, entry[1].index))
    return [
        Change(kind, pair, *diff(_shown(pair.a), _shown(pair.b))) for kind, pair in found[:limit]
    ]


def diff(a: str, b: str) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """Return both texts in pieces, changed words marked; joined, they are the texts again."""
    words_a, words_b = _WORDS.findall(a), _WORDS.findall(b)
    if max(len(words_a), len(words_b)) > MAX_DIFF_WORDS:
        return (Segment(a, False),), (Segment(b, False),)
    left: list[Segment] = []
    right: list[Segment] = []
    matcher = SequenceMatcher(None, words_a, words_b, autojunk=False)
    for tag, a1, a2, b1, b2 in matcher.get_opcodes():
        for side, text in ((left, "".join(words_a[a1:a2])), (right, "".join(words_b[b1:b2]))):
            if text:
                side.append(Segment(text, tag != "equal"))
    return tuple(left), tuple(right)


def _shown(answer: Answer) -> str:
    return answer.reply.text if answer.reply.text is not None else f"[{answer.reply.error}]"
