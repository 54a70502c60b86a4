"""Changes from the baseline's answers to the candidate's, item by item, with a word diff."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from evenkeel_evals.ask.answers import Answer, AnsweredPair

_WORDS = re.compile(r"\s+|[^\s\w]|\w+")
_LETTER = re.compile(r"\w")
# In longer answers, everything between the first and the last differing character is marked.
MAX_DIFF_CHARS = 20_000
# Inserted and deleted words; beyond it, everything between the first and the last is marked.
MAX_EDITS = 250


class ChangeKind(StrEnum):
    """How an item changed, most interesting kind first."""

    LOST = "lost"
    GAINED = "gained"
    UNSCORED = "unscored"
    REWORDED = "reworded"


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of an answer; `is_changed` if the other side differs there."""

    text: str
    is_changed: bool


@dataclass(frozen=True, slots=True)
class ItemChange:
    """One item whose answers differ.

    Attributes:
        kind: lost (was right, is wrong), gained, unscored on a side, or reworded: another text
            with the same score.
        pair: The item and both answers.
        a: The baseline's answer in segments; its error if there is no answer.
        b: The candidate's.
    """

    kind: ChangeKind
    pair: AnsweredPair
    a: tuple[Segment, ...]
    b: tuple[Segment, ...]


def find_kind(pair: AnsweredPair) -> ChangeKind | None:
    """Return how a pair changed, or None if it did not."""
    if not pair.is_measured:
        return ChangeKind.UNSCORED
    if pair.a.is_right != pair.b.is_right:
        return ChangeKind.LOST if pair.a.is_right else ChangeKind.GAINED
    return None if pair.a.reply.text == pair.b.reply.text else ChangeKind.REWORDED


def count_changes(pairs: Sequence[AnsweredPair]) -> dict[ChangeKind, int]:
    """Return the number of changed pairs by kind; every kind has a count."""
    kinds = [find_kind(pair) for pair in pairs]
    return {kind: kinds.count(kind) for kind in ChangeKind}


def find_changes(pairs: Sequence[AnsweredPair], limit: int) -> list[ItemChange]:
    """Return at most `limit` changed items: lost first, then gained, unscored and reworded."""
    return list(each_change(pairs, limit))


def each_change(pairs: Sequence[AnsweredPair], limit: int) -> Iterator[ItemChange]:
    """Yield the items of `find_changes` lazily; each word diff is computed on demand."""
    order = list(ChangeKind)
    found = [(kind, pair) for pair in pairs if (kind := find_kind(pair)) is not None]
    found.sort(key=lambda entry: (order.index(entry[0]), entry[1].item.id, entry[1].index))
    for kind, pair in found[:limit]:
        yield ItemChange(kind, pair, *diff(_shown(pair.a), _shown(pair.b)))


def diff(a: str, b: str) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """Return both texts in segments with changed words marked; joined, they equal the texts."""
    if max(len(a), len(b)) > MAX_DIFF_CHARS:
        return _differ_within(a, b)
    words_a, words_b = _WORDS.findall(a), _WORDS.findall(b)
    kept_a, kept_b = [False] * len(words_a), [False] * len(words_b)
    for place_a, place_b in _find_common(words_a, words_b):
        kept_a[place_a] = kept_b[place_b] = True
    return _segments(words_a, kept_a), _segments(words_b, kept_b)


def _differ_within(a: str, b: str) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """Return both texts, with everything between their common prefix and suffix as one change."""
    shorter = min(len(a), len(b))
    start = bisect_left(range(1, shorter + 1), True, key=lambda n: a[:n] != b[:n])
    rest = shorter - start
    end = bisect_left(range(1, rest + 1), True, key=lambda n: a[-n:] != b[-n:])

    def pieces(text: str) -> tuple[Segment, ...]:
        last = len(text) - end
        parts = ((text[:start], False), (text[start:last], True), (text[last:], False))
        return tuple(Segment(part, is_changed) for part, is_changed in parts if part)

    return pieces(a), pieces(b)


def _find_common(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Return the positions of a longest common subsequence, in order.

    Myers, "An O(ND) Difference Algorithm and Its Variations" (1986), which takes time in proportion
    to the words and the edits. For texts more than MAX_EDITS apart, only the common prefix and
    suffix are returned.
    """
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    inner_a, inner_b = a[start : len(a) - end], b[start : len(b) - end]
    inner = _walk_back(_furthest(inner_a, inner_b), inner_a, inner_b)
    return [
        *((i, i) for i in range(start)),
        *((start + i, start + j) for i, j in inner),
        *((len(a) - i, len(b) - i) for i in range(end, 0, -1)),
    ]


def _furthest(a: Sequence[str], b: Sequence[str]) -> list[dict[int, int]]:
    """Return, per number of edits, how far each diagonal reaches in `a`; [] if too many."""
    reached: dict[int, int] = {1: 0}
    steps = []
    for edits in range(MAX_EDITS + 1):
        steps.append(dict(reached))
        for diagonal in range(-edits, edits + 1, 2):
            below, right = reached.get(diagonal + 1, -1), reached.get(diagonal - 1, -1)
            x = below if diagonal == -edits or (diagonal != edits and right < below) else right + 1
            y = x - diagonal
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            reached[diagonal] = x
            if x >= len(a) and y >= len(b):
                return steps
    return []


def _walk_back(
    steps: Sequence[dict[int, int]], a: Sequence[str], b: Sequence[str]
) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    x, y = len(a), len(b)
    for edits in range(len(steps) - 1, -1, -1):
        reached, diagonal = steps[edits], x - y
        below, right = reached.get(diagonal + 1, -1), reached.get(diagonal - 1, -1)
        is_below = diagonal == -edits or (diagonal != edits and right < below)
        start_x = below if is_below else right
        start_y = start_x - (diagonal + 1 if is_below else diagonal - 1)
        while x > max(start_x, 0) and y > max(start_y, 0) and a[x - 1] == b[y - 1]:
            x, y = x - 1, y - 1
            found.append((x, y))
        x, y = start_x, start_y
    return found[::-1]


def _segments(words: Sequence[str], kept: Sequence[bool]) -> tuple[Segment, ...]:
    runs = [
        Segment("".join(words[i] for i in run), not is_kept)
        for is_kept, run in groupby(range(len(words)), key=lambda i: kept[i])
    ]
    # A lone space or comma between two changes makes them harder to read.
    inner = [
        Segment(
            run.text, run.is_changed or (0 < i < len(runs) - 1 and not _LETTER.search(run.text))
        )
        for i, run in enumerate(runs)
    ]
    return tuple(
        Segment("".join(run.text for run in joined), is_changed)
        for is_changed, joined in groupby(inner, key=lambda run: run.is_changed)
    )


def _shown(answer: Answer) -> str:
    return answer.reply.text if answer.reply.text is not None else f"[{answer.reply.error}]"
