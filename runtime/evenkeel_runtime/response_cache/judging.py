"""Judge near entries: what the guards object to, and the class of the hit."""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern

from evenkeel_runtime.response_cache.entry import CacheEntry
from evenkeel_runtime.response_cache.hit_class import KnownQuestion, NearQuestion, classify
from evenkeel_runtime.response_cache.neighbours import NearHit
from evenkeel_runtime.response_cache.question import Question
from evenkeel_runtime.text.agreement import plain_words
from evenkeel_runtime.text.guards import find_difference, find_stems


def judge(
    question: Question, near: Sequence[NearQuestion], answer: int, entries: Sequence[CacheEntry]
) -> NearHit:
    """Return the hit of an answer, from the nearest entries that have it."""
    objections = [(find_difference(question.text, entry.question), entry) for entry in entries]
    # Two wordings may differ where a third one agrees with both.
    refused_by, entry = next((o for o in objections if o[0] is None), objections[0])
    hit_class = classify(refused_by, find_stems(question.text), near, answer)
    return NearHit(entry, hit_class, refused_by)


def know(entry: CacheEntry) -> KnownQuestion:
    """Return what is compared of an entry without reading it."""
    stems = sorted(map(intern, find_stems(entry.question)))
    return KnownQuestion(hash(plain_words(entry.text)), tuple(stems))
