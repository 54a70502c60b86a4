"""Follow a cached answer that is the draft of a request's whole answer.

The cache passes on its answer to a similar question. The model's own answer may be the same, differ
in a word, or be another one; after a difference, the place to continue from is searched for.
"""

from __future__ import annotations

from collections.abc import Sequence

from evenkeel_runtime.wire.drafts import ANSWER_KEY, OTHERS_KEY, TRUST_KEY, unpack_tokens

# Degrees of trust in an answer that has agreed so far; 0 is the highest. Each has its own
# acceptance rates, as have answers after a difference.
NUM_TRUSTS = 4
AFTER_DIFFERENCE = NUM_TRUSTS
# Number of tokens that must match to continue after a difference, longest first.
_ALIGNING_LENGTHS = (4, 2)
_MAX_OTHERS = 8


class HandedAnswer:
    """A request's cached answer, and the position in it that the model has reached.

    Args:
        tokens: The answer; may be empty.
        trust: Degree of trust, from 0 to `NUM_TRUSTS` - 1.
        others: Other answers. Once the answer differs, the first that has agreed so far is used.

    Attributes:
        kind: `trust` until the first difference, then `AFTER_DIFFERENCE`.
        run: Tokens that have agreed since the beginning, or since the last difference.
    """

    def __init__(
        self, tokens: Sequence[int] = (), trust: int = 0, others: Sequence[Sequence[int]] = ()
    ) -> None:
        self.kind = trust
        self.run = 0
        self._tokens = list(tokens)
        self._packed = _pack(tokens)
        self._others = [list(other) for other in others]
        self._at = 0
        self._differs_at = 0
        self._seen = 0

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def follow(self, answer: Sequence[int]) -> None:
        """Advance to the end of the model's own answer so far, which only grows."""
        for token in answer[self._seen :]:
            at = self._at
            if at < len(self._tokens) and self._tokens[at] == token:
                self._at, self.run = at + 1, self.run + 1
                continue
            is_unknown = self.kind == AFTER_DIFFERENCE and self.run == 0
            if not is_unknown:
                self._differs_at = at
            # One token may be replaced and the rest agree. If the next one differs too, several
            # tokens must match.
            self._at = len(self._tokens) if is_unknown else at + 1
            self.kind, self.run = AFTER_DIFFERENCE, 0
        self._seen = len(answer)
        if self.kind == AFTER_DIFFERENCE and self._others:
            self._switch(list(answer))
        if self.kind == AFTER_DIFFERENCE and self.run == 0:
            self._find_back(answer[-_ALIGNING_LENGTHS[0] :])

    def rest(self, max_tokens: int) -> list[int]:
        """Return up to `max_tokens` of the rest of the answer; none if its position is unknown."""
        return self._tokens[self._at : self._at + max_tokens]

    def _switch(self, answer: list[int]) -> None:
        """Continue with another answer that begins like the model's, if there is one."""
        # The model's answer only grows, so one that differs from it is never tried again.
        size = len(answer)
        self._others = [o for o in self._others if len(o) > size and o[:size] == answer]
        if self._others:
            self._tokens = self._others[0]
            self._packed = _pack(self._tokens)
            # Most of what is alike at its beginning is the same answer.
            self.kind, self.run, self._at = NUM_TRUSTS - 1, size, size

    def _find_back(self, recent: Sequence[int]) -> None:
        """Go to where the last tokens match: first after the difference, else anywhere."""
        for length in _ALIGNING_LENGTHS:
            if length > len(recent):
                continue
            ngram = _pack(recent[-length:])
            at = self._packed.find(ngram, self._differs_at)
            at = self._packed.find(ngram) if at < 0 else at
            if at >= 0:
                self._at, self.run = at + length, length
                return


def _pack(tokens: Sequence[int]) -> str:
    """Return the tokens as characters: of bytes, a search would also look between tokens."""
    return "".join(map(chr, tokens))


def read_handed(extra_args: object, vocabulary: int, max_tokens: int) -> HandedAnswer:
    """Return the answer in a request's `extra_args`; empty if it is missing or invalid.

    Args:
        extra_args: Untrusted arguments of the request.
        vocabulary: Size of the model's vocabulary; a larger id would crash the engine.
        max_tokens: Longest answer of the request; what is longer is cut, because each step may
            search all of it.
    """
    if not isinstance(extra_args, dict):
        return HandedAnswer()
    tokens = _read_tokens(extra_args.get(ANSWER_KEY), vocabulary, max_tokens)
    if tokens is None:
        return HandedAnswer()
    trust = extra_args.get(TRUST_KEY, 0)
    others = extra_args.get(OTHERS_KEY)
    others = others[:_MAX_OTHERS] if isinstance(others, list) else []
    read = (_read_tokens(other, vocabulary, max_tokens) for other in others)
    return HandedAnswer(
        tokens,
        trust if type(trust) is int and 0 <= trust < NUM_TRUSTS else 0,
        [other for other in read if other is not None],
    )


def _read_tokens(value: object, vocabulary: int, max_tokens: int) -> list[int] | None:
    """Return up to `max_tokens` token ids; None if they are none. Fast: the engine waits."""
    found = unpack_tokens(value)
    if found is None:
        return None
    tokens = found[:max_tokens]
    is_packed = isinstance(value, bytes)
    are_ids = is_packed or (set(map(type, tokens)) <= {int} and 0 <= min(tokens, default=0))
    return tokens if are_ids and max(tokens, default=0) < vocabulary else None
