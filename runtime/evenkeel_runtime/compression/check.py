"""Verify a shortened conversation against the original, regardless of how it was shortened."""

from __future__ import annotations

import re
from collections.abc import Sequence

from evenkeel_runtime.compression.sentences import SENTENCE_END, is_instruction
from evenkeel_runtime.compression.shorten import Turn
from evenkeel_runtime.text.guards import find_capitalised, find_numbers, find_stems, has_negation

_HAS_WORD = re.compile(r"\w")


def find_loss(original: Sequence[Turn], shortened: Sequence[Turn], keep_turns: int) -> str | None:
    """Return the kind of loss, or None if nothing essential was lost.

    - `order`: messages were removed, added or emptied, or changed role.
    - `protected`: an instruction message or one of the last `keep_turns` was changed.
    - `invented`: the shortened text contains something that the original does not.
    - `numbers`, `names`, `instructions`, `negation`: some of these were removed.
    - `question`: the history no longer mentions a word of the newest question.
    """
    if [t.role for t in original] != [t.role for t in shortened]:
        return "order"
    if any(before.content and not after.content for before, after in _pairs(original, shortened)):
        return "order"
    first_kept = max(0, len(original) - keep_turns)
    for place, (before, after) in enumerate(_pairs(original, shortened)):
        is_protected = place >= first_kept or before.role not in ("user", "assistant")
        if is_protected and before != after:
            return "protected"
        loss = None if before == after else _find_loss(before.content, after.content)
        if loss is not None:
            return loss
    asked = find_stems(original[-1].content) if original else frozenset()
    said = frozenset[str]().union(*(find_stems(t.content) for t in original[:first_kept]))
    still = frozenset[str]().union(*(find_stems(t.content) for t in shortened[:first_kept]))
    return "question" if (asked & said) - still else None


def _pairs(left: Sequence[Turn], right: Sequence[Turn]) -> list[tuple[Turn, Turn]]:
    return list(zip(left, right, strict=True))


def _find_loss(before: str, after: str) -> str | None:
    lines, left = _lines(before), _lines(after)
    if not _is_part(left, lines):
        return "invented"
    if find_numbers(before) != find_numbers(after):
        return "numbers"
    if find_capitalised(before) != find_capitalised(after):
        return "names"
    remaining = set(left)
    for line in lines:
        if line not in remaining and is_instruction(line):
            return "instructions"
        if line not in remaining and has_negation(line):
            return "negation"
    return None


def _lines(text: str) -> list[str]:
    """Return the sentences that contain a word, with whitespace normalised."""
    found = (" ".join(line.split()) for line in SENTENCE_END.split(text))
    return [line.rstrip(".!? ") for line in found if _HAS_WORD.search(line)]


def _is_part(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether `part` is `whole` with some lines left out, in the same order."""
    rest = iter(whole)
    return all(line in rest for line in part)
