"""Scorers that take texts literally, as other tools do, without normalisation."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel_evals.scorers.base import (
    Judge,
    Options,
    Score,
    read_text,
    read_texts,
    refuse_empty,
)
from evenkeel_evals.scorers.options import read_flag
from evenkeel_evals.scorers.time_limit import limited


def equals(reference: Any, options: Options) -> Judge:
    """Judge whether the answer equals the reference, or one of a list, whitespace included."""
    fold = _fold("equals", options)
    accepted = {fold(text) for text in read_texts("equals", reference)}
    return lambda answer: Score.of(fold(answer) in accepted)


def substring(reference: Any, options: Options) -> Judge:
    """Judge whether the answer contains the reference; for a list all of it, or one with `any`."""
    fold = _fold("substring", options)
    texts = read_texts("substring", reference)
    refuse_empty("substring", texts)
    wanted = [fold(text) for text in texts]
    is_any = read_flag("substring", options, "any", False)

    def judge(answer: str) -> Score:
        folded = fold(answer)
        missing = [text for text in wanted if text not in folded]
        if is_any:
            return Score.of(len(missing) < len(wanted))
        return Score.of(not missing, f"lacks {missing[0]!r:.80}" if missing else None)

    return judge


def starts_with(reference: Any, options: Options) -> Judge:
    """Judge whether the answer starts with the reference, or with one of a list."""
    fold = _fold("starts_with", options)
    accepted = tuple(fold(text) for text in read_texts("starts_with", reference))
    refuse_empty("starts_with", accepted)
    return lambda answer: Score.of(fold(answer).startswith(accepted))


def ends_with(reference: Any, options: Options) -> Judge:
    """Judge whether the answer ends with the reference, or with one of a list."""
    fold = _fold("ends_with", options)
    accepted = tuple(fold(text) for text in read_texts("ends_with", reference))
    refuse_empty("ends_with", accepted)
    return lambda answer: Score.of(fold(answer).endswith(accepted))


def regex(reference: Any, options: Options) -> Judge:
    """Judge whether the reference, a regular expression, matches the answer."""
    try:
        flags = 0 if read_flag("regex", options, "case_sensitive", True) else re.IGNORECASE
        text = read_text("regex", reference)
        refuse_empty("regex", [text])
        pattern = re.compile(text, flags)
    except re.error as error:
        raise ConfigurationError(f"reference is not a regular expression: {error}") from error
    find = pattern.fullmatch if read_flag("regex", options, "full", False) else pattern.search
    return limited(lambda answer: Score.of(find(answer.strip()) is not None))


def _fold(name: str, options: Options) -> Callable[[str], str]:
    """Return the function applied to both texts before they are compared.

    By default the identity; `case_sensitive`: false ignores case, `strip`: true removes whitespace
    and punctuation from both ends.
    """
    is_cased = read_flag(name, options, "case_sensitive", True)
    dropped = string.whitespace + string.punctuation
    if not read_flag(name, options, "strip", False):
        return str if is_cased else str.casefold
    return lambda text: (text if is_cased else text.casefold()).strip(dropped)
