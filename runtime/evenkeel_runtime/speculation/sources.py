"""Propose drafts from the semantic cache, past answers and the request's own text.

Each source finds an earlier match for the end of a request's text and proposes what followed it. A
draft records its source and how much text matched, because its acceptance depends on both.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from evenkeel_runtime.speculation.cached_draft import AFTER_DIFFERENCE, HandedAnswer
from evenkeel_runtime.speculation.draft_store import NGRAM_LENGTHS, DraftStore

# How far back a request's own text is searched; searching further costs more than it gains.
_OWN_TEXT_TOKENS = 4096
_OWN_LENGTHS = (4, 2)
_TOKEN_BYTES = array("i").itemsize
# Fewest agreed tokens for strength 0, 1 and 2; below the last, the strength is 3.
_STRENGTH_LIMITS = (32, 8, 4)
NUM_STRENGTHS = len(_STRENGTH_LIMITS) + 1


class DraftSource(StrEnum):
    """The source of a draft."""

    CACHE = "cache"
    RETRIEVAL = "retrieval"
    PROMPT = "prompt"


@dataclass(frozen=True, slots=True)
class Draft:
    """A proposed continuation.

    Attributes:
        tokens: The proposal, at least one token.
        source: The source that proposed it.
        strength: 0 if a long text agreed before it, up to `NUM_STRENGTHS` - 1 for two tokens; for a
            cached answer, its `HandedAnswer.kind`.
        run: For a cached answer, the tokens before these that have agreed.
    """

    tokens: list[int]
    source: DraftSource
    strength: int
    run: int = 0


@dataclass(slots=True)
class Trail:
    """One request's text, and the position of each source in it.

    Attributes:
        owner: Scope for past answers: only requests of the same owner share them.
        text: Prompt and answer so far; the caller's list, which grows.
        num_prompt_tokens: Length of the prompt.
        handed: The cached answer that came with the request.
    """

    owner: str
    text: Sequence[int]
    num_prompt_tokens: int
    handed: HandedAnswer = field(default_factory=HandedAnswer)
    _packed: bytearray = field(default_factory=bytearray)
    _packed_from: int = 0
    _packed_tokens: int = 0
    _position: int | None = None
    _agreed: int = 0
    _seen_tokens: int = 0


def propose(store: DraftStore, trail: Trail, max_tokens: int, answer_tokens: int) -> Draft | None:
    """Return the draft of the most reliable source, or None.

    Sources in order: the cached answer that came with the request, while the answer follows it; a
    past answer already being followed, or one that matches at least four tokens; the cached answer
    right after a difference; an earlier match in the request's own text; a past answer that matches
    two tokens.

    Args:
        store: Past answers.
        trail: The request.
        max_tokens: Longest draft.
        answer_tokens: Longest draft from the cached answer.
    """
    handed = propose_handed(trail, answer_tokens) if trail.handed and answer_tokens > 0 else None
    if handed is not None and (handed.strength != AFTER_DIFFERENCE or handed.run):
        return handed
    if max_tokens <= 0:
        return handed
    past = _propose_past(store, trail, max_tokens)
    if past is not None and past.strength < NUM_STRENGTHS - 1:
        return past
    return handed or _propose_own(trail, max_tokens) or past


def rate_strength(agreed_tokens: int) -> int:
    """Return the strength of a draft preceded by `agreed_tokens` matches; 0 is the strongest."""
    for strength, limit in enumerate(_STRENGTH_LIMITS):
        if agreed_tokens >= limit:
            return strength
    return NUM_STRENGTHS - 1


def propose_handed(trail: Trail, max_tokens: int) -> Draft | None:
    """Return the rest of the request's cached answer; None if the model has left it."""
    handed = trail.handed
    handed.follow(trail.text[trail.num_prompt_tokens :])
    tokens = handed.rest(max_tokens)
    if not tokens:
        return None
    return Draft(tokens, DraftSource.CACHE, handed.kind, handed.run)


def _propose_past(store: DraftStore, trail: Trail, max_tokens: int) -> Draft | None:
    num_tokens = len(trail.text)
    if trail._position is not None:
        new = list(trail.text[trail._seen_tokens :])
        if store.follow(trail._position, new):
            trail._position += len(new)
            trail._agreed += len(new)
        else:
            trail._position = None
    if trail._position is None:
        match = None
        if num_tokens == trail.num_prompt_tokens + 1:
            prompt = trail.text[: trail.num_prompt_tokens]
            match = store.find_answer(trail.owner, prompt, trail.text[-1])
        match = match or store.find(trail.owner, trail.text[-NGRAM_LENGTHS[0] :])
        if match is not None:
            trail._position, trail._agreed = match.position, match.length
    if trail._position is None:
        return None
    trail._seen_tokens = num_tokens
    tokens = store.continuation(trail._position, max_tokens)
    if not tokens:
        trail._position = None
        return None
    return Draft(tokens, DraftSource.RETRIEVAL, rate_strength(trail._agreed))


def _propose_own(trail: Trail, max_tokens: int) -> Draft | None:
    num_tokens = len(trail.text)
    if not trail._packed:
        trail._packed_from = trail._packed_tokens = max(0, num_tokens - _OWN_TEXT_TOKENS)
    if trail._packed_tokens < num_tokens:
        trail._packed += array("i", trail.text[trail._packed_tokens :]).tobytes()
        trail._packed_tokens = num_tokens
    packed = trail._packed
    for length in _OWN_LENGTHS:
        if len(packed) <= length * _TOKEN_BYTES:
            continue
        # Search before the last token, so that the n-gram does not match itself.
        ngram = bytes(packed[-length * _TOKEN_BYTES :])
        at = _search(packed, ngram, len(packed) - _TOKEN_BYTES)
        if at is not None:
            start = trail._packed_from + at // _TOKEN_BYTES + length
            return Draft(
                list(trail.text[start : start + max_tokens]),
                DraftSource.PROMPT,
                rate_strength(length),
            )
    return None


def _search(packed: bytes | bytearray, ngram: bytes, end: int) -> int | None:
    """Return the last token-aligned offset of `ngram` before `end`, or None."""
    at = packed.rfind(ngram, 0, end)
    while at > 0 and at % _TOKEN_BYTES:
        at = packed.rfind(ngram, 0, at + len(ngram) - 1)
    return at if at >= 0 else None
