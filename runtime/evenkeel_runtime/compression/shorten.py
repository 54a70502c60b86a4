"""Shorten the old turns of a conversation to what the newest question is likely to need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evenkeel_runtime.compression.sentences import Sentence, split_message
from evenkeel_runtime.text.guards import find_stems

_SHORTENED_ROLES = ("user", "assistant")


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of text."""

    role: str
    content: str


def find_old(turns: Sequence[Turn], keep_turns: int) -> list[int]:
    """Return the indices of the messages that may be shortened: old ones without instructions."""
    old = range(max(0, len(turns) - keep_turns))
    return [place for place in old if turns[place].role in _SHORTENED_ROLES]


def shorten(turns: Sequence[Turn], keep_turns: int, keep_ratio: float) -> list[Turn]:
    """Return the conversation with sentences dropped from its old turns.

    Kept are all sentences that must stay, all that share a word with the last message, and the
    latest others up to `keep_ratio` of the droppable ones. The order does not change, and a message
    that would become empty keeps its first sentence.
    """
    places = find_old(turns, keep_turns)
    asked = find_stems(turns[-1].content) if turns else frozenset()
    split = {place: split_message(turns[place].content) for place in places}
    loose = [
        (place, number)
        for place, sentences in split.items()
        for number, sentence in enumerate(sentences)
        if not sentence.must_stay
    ]
    # On ties prefer the newer sentence, which is nearer to the question.
    by_use = sorted(loose, key=lambda at: (_overlap(split[at[0]][at[1]], asked), at), reverse=True)
    kept = set(by_use[: int(len(loose) * keep_ratio)])
    kept |= {at for at in loose if _overlap(split[at[0]][at[1]], asked) > 0}
    result = list(turns)
    for place, sentences in split.items():
        left = [
            sentence.text
            for number, sentence in enumerate(sentences)
            if sentence.must_stay or (place, number) in kept
        ]
        text = "".join(left or [s.text for s in sentences[:1]]).strip()
        result[place] = Turn(turns[place].role, text or turns[place].content)
    return result


def _overlap(sentence: Sentence, asked: frozenset[str]) -> int:
    return len(sentence.stems & asked)
