"""Propose drafts from the semantic cache, past answers and the request's own text.

Each source finds an earlier match for the end of a request's text and proposes what followed it. A
draft records its source and how many tokens matched, because its acceptance depends on both.
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
# A past answer that matches this many tokens makes a search of the request's own text needless.
_LONG_MATCH = 4


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
        run: Tokens before these that match the text it is from. A past answer must match the
            answer: what prompts end with is alike in all of them and counts only if a whole prompt
            is the same.
        kind: For a cached answer, its `HandedAnswer.kind`; otherwise 0.
    """

    tokens: list[int]
    source: DraftSource
    run: int
    kind: int = 0


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


def propose(store: DraftStore, trail: Trail, max_tokens: int, answer_tokens: int) -> list[Draft]:
    """Return the drafts to choose from; at most one of each source.

    A cached answer that the model has followed so far is the only one. The request's own text is
    searched if no past answer matches four tokens.

    Args:
        store: Past answers.
        trail: The request.
        max_tokens: Longest draft from the request's own text.
        answer_tokens: Longest draft from a cached or past answer.
    """
    handed = past = own = None
    if answer_tokens > 0:
        handed = propose_handed(trail, answer_tokens) if trail.handed else None
        if handed is not None and handed.kind != AFTER_DIFFERENCE:
            return [handed]
        past = _propose_past(store, trail, answer_tokens)
    if max_tokens > 0 and (past is None or past.run < _LONG_MATCH):
        own = _propose_own(trail, max_tokens)
    return [draft for draft in (past, handed, own) if draft is not None]


def propose_handed(trail: Trail, max_tokens: int) -> Draft | None:
    """Return the rest of the request's cached answer; None if the model has left it."""
    handed = trail.handed
    handed.follow(trail.text[trail.num_prompt_tokens :])
    tokens = handed.rest(max_tokens)
    if not tokens:
        return None
    return Draft(tokens, DraftSource.CACHE, handed.run, handed.kind)


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
            if not match.is_same_prompt:
                trail._agreed = min(match.length, num_tokens - trail.num_prompt_tokens)
    if trail._position is None:
        return None
    trail._seen_tokens = num_tokens
    tokens = store.continuation(trail._position, max_tokens)
    if not tokens:
        trail._position = None
        return None
    return Draft(tokens, DraftSource.RETRIEVAL, trail._agreed)


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
                length,
            )
    return None


def _search(packed: bytes | bytearray, ngram: bytes, end: int) -> int | None:
    """Return the last token-aligned offset of `ngram` before `end`, or None."""
    at = packed.rfind(ngram, 0, end)
    while at > 0 and at % _TOKEN_BYTES:
        at = packed.rfind(ngram, 0, at + len(ngram) - 1)
    return at if at >= 0 else None
