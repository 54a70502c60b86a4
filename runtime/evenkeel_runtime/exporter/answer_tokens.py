"""What the tokens of an answer say about it: how much repeats, is reasoning, or shows nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from evenkeel_runtime.wire.frames import AnswerMarks

GRAM = 4
_TOKEN_BYTES = 4
# Odd and with mixed bits (the golden ratio's): 4-grams of 32-bit tokens do not collide in practice.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class AnswerSplit:
    """An answer's reasoning and what follows it.

    Attributes:
        reasoning_tokens: Tokens of reasoning, without the marks around it; None if the model does
            not reason.
        visible_tokens: Tokens outside the reasoning, without the one that ends the answer; 0 if
            they show nothing.
        first_visible: Place of the first token outside the reasoning that shows something, from 0;
            None without one.
    """

    reasoning_tokens: int | None
    visible_tokens: int
    first_visible: int | None


def repeated_share(answer: bytes) -> float | None:
    """Return which share of an answer's 4-grams of tokens occurred earlier in it, 0-1.

    1 - distinct 4-grams / 4-grams. A loop of p tokens has p distinct 4-grams, so its share tends to
    1; text hardly repeats four tokens. None for fewer than two 4-grams. Memory: 40 bytes per token.

    Args:
        answer: Token ids, 4 bytes each in native byte order.
    """
    tokens = np.frombuffer(answer, np.uint32).astype(np.uint64)
    num_grams = len(tokens) - GRAM + 1
    if num_grams < 2:
        return None
    hashed = tokens[:num_grams].copy()
    for place in range(1, GRAM):
        hashed *= _FACTOR
        hashed ^= hashed >> np.uint64(29)
        hashed += tokens[place : place + num_grams]
    hashed.sort()
    num_repeated = int(np.count_nonzero(hashed[1:] == hashed[:-1]))
    return num_repeated / num_grams


def split_answer(answer: bytes, marks: AnswerMarks, opens_in_reasoning: bool) -> AnswerSplit | None:
    """Return an answer's split; None if the model reasons and its marks are unknown.

    A closing mark without an opening one ends reasoning that began with the answer, because some
    chat templates open it in the prompt. Reasoning that is never closed has no visible answer.

    Args:
        answer: Token ids, 4 bytes each in native byte order.
        marks: The model's marks.
        opens_in_reasoning: Whether the prompt ends inside the reasoning.
    """
    num_tokens = len(answer) // _TOKEN_BYTES
    if not marks.reasons:
        return _split(answer, marks, [], None, num_tokens)
    if not marks.closes or not marks.opens:
        return None
    spans = list(_find_reasoning(answer, marks, opens_in_reasoning))
    inside = sum(span.end - span.start for span in spans)
    return _split(answer, marks, spans, inside, num_tokens)


@dataclass(frozen=True, slots=True)
class _Span:
    """Reasoning from `start` to `end`, in tokens; its marks lie between `outer` and `after`."""

    outer: int
    start: int
    end: int
    after: int


def _find_reasoning(answer: bytes, marks: AnswerMarks, is_open: bool) -> Iterator[_Span]:
    opens, closes = _pack(marks.opens), _pack(marks.closes)
    num_tokens = len(answer) // _TOKEN_BYTES
    first_open, first_close = _find(answer, opens, 0), _find(answer, closes, 0)
    if is_open or (first_close >= 0 and not 0 <= first_open < first_close):
        start = len(marks.opens) if first_open == 0 else 0
        outer = 0
    else:
        outer, start = first_open, first_open + len(marks.opens)
    while outer >= 0:
        end = _find(answer, closes, start)
        if end < 0:
            yield _Span(outer, start, num_tokens, num_tokens)
            return
        after = end + len(marks.closes)
        yield _Span(outer, start, end, after)
        outer = _find(answer, opens, after)
        start = outer + len(marks.opens)


def _split(
    answer: bytes,
    marks: AnswerMarks,
    spans: list[_Span],
    reasoning_tokens: int | None,
    num_tokens: int,
) -> AnswerSplit:
    tokens = memoryview(answer).cast("I")
    ends = [0, *(span.after for span in spans)]
    starts = [*(span.outer for span in spans), num_tokens]
    first = next(
        (
            place
            for begin, end in zip(ends, starts, strict=True)
            for place in range(begin, end)
            if tokens[place] not in marks.silent
        ),
        None,
    )
    num_visible = 0
    if first is not None:
        # The end-of-sequence token; an answer cut within its reasoning has none.
        is_ended = ends[-1] < num_tokens and tokens[-1] in marks.silent
        num_visible = sum(starts) - sum(ends) - int(is_ended)
    return AnswerSplit(reasoning_tokens, num_visible, first)


def _pack(tokens: tuple[int, ...]) -> bytes:
    return np.array(tokens, np.uint32).tobytes()


def _find(answer: bytes, pattern: bytes, start: int) -> int:
    """Return the first place of a pattern at or after a token, in tokens; -1 if it is not there."""
    at = answer.find(pattern, start * _TOKEN_BYTES)
    while at >= 0 and at % _TOKEN_BYTES:
        at = answer.find(pattern, at + 1)
    return at // _TOKEN_BYTES if at >= 0 else -1
