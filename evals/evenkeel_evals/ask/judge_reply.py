"""Parses a judge model's reply: a word, a sentence or JSON, with or without its reasoning."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Longest excerpt kept of an unreadable reply.
SHOWN = 200
# Verdicts stand at the end or the beginning of a reply; nothing else is searched.
SEARCHED = 4_000

_THOUGHTS = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.IGNORECASE | re.DOTALL)
_OPEN_THOUGHTS = re.compile(r"<(?:think|thinking|reasoning)>", re.IGNORECASE)
_CLOSE_THOUGHTS = re.compile(r"^.*</(?:think|thinking|reasoning)>", re.IGNORECASE | re.DOTALL)
_NOUN = r"(?:the\s+)?(?:answer|response|option|assistant|candidate)\s*"
_MARKS = r"[#(\[\"'*_{]*"
_CHOICE = rf"(?:{_NOUN})?{_MARKS}([12])\b[)\]\"'*_}}]*"
# A bare number in a sentence may be a step or a fact: it needs its noun, or to come first.
_NAMED = rf"(?:{_NOUN}|^\s*){_MARKS}([12])\b[)\]\"'*_]*"
_GOOD = r"(?:better|best|preferable|preferred|superior|stronger|the\s+winner|clearly\s+better)"
_NEITHER = (
    r"\b(?:neither(?:\s+(?:answer|one|is|of))|equally\s+(?:good|bad|well|poor)|tied?(?!-)|a\s+draw|"
    r"no\s+(?:clear\s+)?(?:winner|difference)|both\s+(?:answers\s+)?are\s+(?:equal|the\s+same))\b"
)
# Each states the winner outright; the first answer it names is the winner.
_STATED = tuple(
    re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    for pattern in (
        rf"\b(?:verdict|winner|choice|decision|preferred)\b[\"'*_ ]*(?:is|:|=|-)+\s*{_CHOICE}",
        rf"\\boxed\{{\s*{_CHOICE}",
        rf"\b(?:prefer|choose|pick|go\s+with|select|favou?r|say)(?:s|red)?\s+{_CHOICE}",
        rf"{_NAMED}[\"'*_ ]*(?:is|was|seems|appears(?:\s+to\s+be)?)\s+(?:\w+\s+){{0,2}}?{_GOOD}",
        rf"{_NAMED}\s+wins\b",
        rf"\b{_GOOD}\s+(?:answer\s+|response\s+|option\s+|one\s+)?(?:is|:|=)*\s*{_CHOICE}",
    )
)
_STATED_TIE = re.compile(
    r"\b(?:verdict|winner|choice|decision)\b[\"'*_ ]*(?:is|:|=|-)+[\"'*_\[({ ]*"
    rf"(?:a\s+)?(?:tie|draw|neither|equal)\b|{_NEITHER}",
    re.IGNORECASE,
)
# "not better" and "worse" are ambiguous: such a clause is ignored.
_DENIED = re.compile(
    rf"\b(?:not|isn't|isn’t|never|no|hardly|scarcely|barely|far\s+from|doubt|second)\s+"
    rf"(?:\w+\s+){{0,5}}?{_GOOD}|\b(?:worse|inferior|weaker|wins\s+no|would\s+be|if)\b",
    re.IGNORECASE,
)
_CLAUSE_ENDS = re.compile(r"[.;!?\n]|,\s|\b(?:but|while|whereas|although|however)\b", re.IGNORECASE)
_ALONE = re.compile(rf"{_MARKS}(?:{_NOUN})?{_MARKS}(1|2|tie)[)\]\"'*_.!]*", re.IGNORECASE)


# Around a verdict of one word.
_FRAME = r"[\"'*_\[\](){}.!\s]*"
_ORDINALS = re.compile(r"\b(?:the\s+)?(first|second)\s+(?:answer|response|option)\b", re.IGNORECASE)
_NUMBERS = {"first": "1", "second": "2"}


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """A judge's reply on one pair in one order.

    Attributes:
        verdict: The winner: A, B or tie; None if the reply was unreadable or missing.
        said: The unreadable reply, shortened; None if it was readable, or if the judge was not
            reached.
    """

    verdict: str | None
    said: str | None = None


NOTHING_SAID = JudgeReply(None)


def read_choice(text: str) -> str | None:
    """Return 1, 2 or tie; None if the text has no verdict or contradicts itself."""
    told = without_thoughts(text)
    if told is None:
        return None
    told = _ORDINALS.sub(lambda match: f"answer {_NUMBERS[match[1].lower()]}", told)
    lines = [line.strip() for line in told.strip().splitlines() if line.strip()]
    if not lines:
        return None
    # The prompt asks for one word; a model that explains puts it first or last.
    for line in (told.strip(), lines[-1], lines[0]):
        alone = _ALONE.fullmatch(line)
        if alone is not None:
            return alone[1].lower()
    is_long = len(told) > 2 * SEARCHED
    found = _stated(f"{told[:SEARCHED]}\n{told[-SEARCHED:]}" if is_long else told)
    return found.pop() if len(found) == 1 else None


def read_word(text: str, words: Sequence[str]) -> str | None:
    """Return which of a few words is the verdict; None if none is, or several are.

    The word stands alone on a line, perhaps behind "Verdict:", or comes first in the reply.
    """
    choice = "|".join(words)
    lines = [line for line in (without_thoughts(text) or "").splitlines() if line.strip()]
    alone = re.compile(
        rf"{_FRAME}(?:(?:verdict|answer)\s*[:=]\s*)?{_FRAME}({choice}){_FRAME}", re.IGNORECASE
    )
    found = {match[1].lower() for line in lines if (match := alone.fullmatch(line))}
    if not found and lines:
        first = re.match(rf"{_FRAME}({choice})\b{_FRAME}(?:[,;:.!-]|$)", lines[0], re.IGNORECASE)
        found = {first[1].lower()} if first else set()
    return found.pop() if len(found) == 1 else None


def _stated(text: str) -> set[str]:
    clauses = [clause for clause in _CLAUSE_ENDS.split(text) if not _DENIED.search(clause)]
    told = "\n.\n".join(clauses)
    winners = {match[1] for pattern in _STATED for match in pattern.finditer(told)}
    return winners or ({"tie"} if _STATED_TIE.search(told) else set())


def without_thoughts(text: str) -> str | None:
    """Return the text after the reasoning; None if the reasoning never ended."""
    told = _CLOSE_THOUGHTS.sub("", _THOUGHTS.sub("", text))
    return None if _OPEN_THOUGHTS.search(told) else told
