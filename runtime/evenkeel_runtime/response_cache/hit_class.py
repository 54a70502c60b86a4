"""Classify near hits by what speaks against them; each class needs evidence of its own.

A class is a kind and two ladders. The kind says what the words of two questions object to, and is
one of a fixed list, so that `alpha` can be divided in advance. The ladders are the cosine to the
nearest question and its lead over the nearest question with another answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from sys import intern

from evenkeel_runtime.response_cache.entry import CacheEntry
from evenkeel_runtime.response_cache.question import Question
from evenkeel_runtime.text.guards import count_stems, find_difference
from evenkeel_runtime.text.signs import find_pieces

# Every word of weight occurs as often in near questions that have this answer, and one of these
# questions has none that the new one lacks.
SAME_WORDS = "same_words"
# The same, but the new question lacks a word of each: "get a gift card" of "redeem a gift card".
KNOWN_WORDS = "known_words"
# Otherwise: the guard's objection, and whether near questions with other answers have the word.
_NEW_WORD, _RIVAL_WORD = "new_word", "rival_word"
_PASSED = "passed"
_SOFT_GUARDS = (_PASSED, "slot", "contrast")
# Objections that known words do not settle: "code P12" and "code P21", "in Bern" and "in Berlin",
# "from Bern to Basel" and the way back.
HARD_GUARDS = ("numbers", "names", "negation", "relation")
KINDS = (
    SAME_WORDS,
    KNOWN_WORDS,
    *(f"{guard}_{word}" for guard in _SOFT_GUARDS for word in (_NEW_WORD, _RIVAL_WORD)),
    *HARD_GUARDS,
)
# Changes with any definition here: evidence does not apply to other classes.
CLASSES_VERSION = 3
# A rival is assumed at this cosine: with few entries, the answer that a question needs may be
# missing rather than far.
ASSUMED_RIVAL = 0.3


@dataclass(frozen=True, slots=True)
class HitClass:
    """What is known of a near hit before the model answers.

    Attributes:
        kind: One of KINDS.
        similarity: Cosine of the question with the nearest one that has this answer.
        lead: That cosine less the one of the nearest question with another answer.
    """

    kind: str
    similarity: float
    lead: float


@dataclass(frozen=True, slots=True)
class KnownQuestion:
    """What is compared of a cached question without reading its entry.

    Attributes:
        answer: Equal for entries with the same answer.
        stems: Stems of its words of weight, as `count_stems` returns them.
    """

    answer: int
    stems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NearQuestion:
    """A cached question and its cosine with the new one."""

    entry_id: str
    similarity: float
    known: KnownQuestion


@dataclass(frozen=True, slots=True)
class NearHit:
    """The best entry for a question in other words.

    Attributes:
        entry: The entry with the near question.
        hit_class: What decides whether there is enough evidence to serve it.
        refused_by: The guard that objects to it; None if none does.
    """

    entry: CacheEntry
    hit_class: HitClass
    refused_by: str | None

    @property
    def similarity(self) -> float:
        """Cosine of the question and the nearest one with this answer."""
        return self.hit_class.similarity


def judge(
    question: Question, near: Sequence[NearQuestion], answer: int, entries: Sequence[CacheEntry]
) -> NearHit:
    """Return the hit of an answer, from the nearest entries that have it."""
    refused_by, entry = find_difference(question.text, entries[0].question), entries[0]
    for other in entries[1:]:
        # Two wordings may differ where a third one agrees with both.
        if refused_by is None:
            break
        if find_difference(question.text, other.question) is None:
            refused_by, entry = None, other
    hit_class = classify(refused_by, count_stems(question.text), near, answer)
    return NearHit(entry, hit_class, refused_by)


def classify(
    guard: str | None, stems: frozenset[str], near: Sequence[NearQuestion], answer: int
) -> HitClass:
    """Return the class of a near hit.

    Args:
        guard: The objection to the nearest questions with this answer; None if there is one that
            no guard objects to.
        stems: Of the new question.
        near: The near questions.
        answer: The hit's, as in `KnownQuestion`.
    """
    same = [n for n in near if n.known.answer == answer]
    rivals = [n for n in near if n.known.answer != answer]
    similarity = max(n.similarity for n in same)
    lead = similarity - max([ASSUMED_RIVAL, *(n.similarity for n in rivals)])
    return HitClass(_find_kind(guard, stems, same, rivals), similarity, lead)


def _find_kind(
    guard: str | None,
    stems: frozenset[str],
    same: Sequence[NearQuestion],
    rivals: Sequence[NearQuestion],
) -> str:
    if guard in HARD_GUARDS:
        return guard
    unknown = stems - _words(same)
    if not unknown:
        has_all = any(n.known.stems and stems.issuperset(n.known.stems) for n in same)
        return SAME_WORDS if has_all else KNOWN_WORDS
    return f"{guard or _PASSED}_{_RIVAL_WORD if unknown & _words(rivals) else _NEW_WORD}"


def _words(near: Iterable[NearQuestion]) -> set[str]:
    return {stem for question in near for stem in question.known.stems}


def know(entry: CacheEntry) -> KnownQuestion:
    """Return what is compared of an entry without reading it."""
    stems = sorted(map(intern, count_stems(entry.question)))
    return KnownQuestion(hash(find_pieces(entry.text)), tuple(stems))
