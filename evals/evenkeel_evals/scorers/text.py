"""Scorers by text similarity: ROUGE-L, BLEU, chrF, edit distance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rapidfuzz.distance import LCSseq, Levenshtein

from evenkeel_evals.scorers.base import (
    Judge,
    Label,
    Options,
    Score,
    read_texts,
)
from evenkeel_evals.scorers.options import read_threshold
from evenkeel_evals.scorers.words import split_words


def rouge_l(reference: Any, options: Options) -> Judge:
    """Judge by ROUGE-L: F1 over the longest common subsequence of words (Lin 2004)."""
    accepted = [split_words(text) for text in read_texts("rouge_l", reference)]

    def value(answer: str) -> float:
        words = split_words(answer)
        return max(_f1_of_common(words, expected) for expected in accepted)

    return _from_threshold(value, read_threshold("rouge_l", options, 0.7))


def edit(reference: Any, options: Options) -> Judge:
    """Judge by 1 − edit distance / length of the longer text, in characters (Levenshtein)."""
    accepted = [text.strip() for text in read_texts("edit", reference)]

    def value(answer: str) -> float:
        return max(Levenshtein.normalized_similarity(answer.strip(), text) for text in accepted)

    return _from_threshold(value, read_threshold("edit", options, 0.9))


def bleu(reference: Any, options: Options) -> Judge:
    """Judge by sacrebleu's sentence BLEU (13a, effective order, exponential smoothing) / 100."""
    from sacrebleu import sentence_bleu

    accepted = read_texts("bleu", reference)

    def value(answer: str) -> float:
        return float(sentence_bleu(answer, accepted, use_effective_order=True).score) / 100

    return _from_threshold(value, read_threshold("bleu", options, 0.5))


def chrf(reference: Any, options: Options) -> Judge:
    """Judge by sacrebleu's sentence chrF (character 6-grams, β = 2) / 100."""
    from sacrebleu import sentence_chrf

    accepted = read_texts("chrf", reference)

    def value(answer: str) -> float:
        return float(sentence_chrf(answer, accepted).score) / 100

    return _from_threshold(value, read_threshold("chrf", options, 0.7))


def _from_threshold(value: Callable[[str], float], threshold: float) -> Judge:
    def judge(answer: str) -> Score:
        # Perfect matches give 1.0000000000000004 from sums over n-grams.
        found = min(1.0, value(answer))
        return Score(found, Label.RIGHT if found >= threshold else Label.WRONG)

    return judge


def _f1_of_common(found: list[str], expected: list[str]) -> float:
    if not found and not expected:
        return 1.0
    return 2 * LCSseq.similarity(found, expected) / (len(found) + len(expected))
