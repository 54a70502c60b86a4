"""Estimate how likely the model is to accept a drafted token, from past results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from operator import mul

from evenkeel_runtime.speculation.cached_draft import AFTER_DIFFERENCE
from evenkeel_runtime.speculation.sources import Draft, DraftSource

# Counts above this are halved, so that old results fade.
_MAX_COUNT = 400.0
# Number of tokens after which a request's own record weighs as much as its kind's.
_KIND_WEIGHT = 8.0
# Factor applied to a request's own record at each verify step.
_OWN_FADING = 0.9
# Most tokens in a request's own record, which are also as many as failures alone amount to. With
# more, one long draft that was right would outweigh many wrong ones after it.
_MAX_OWN = 10.0
# Initial estimates of the probability that the next token of a draft is wrong, by the tokens that
# have agreed (0, 1, 2-3, 4-7, …): of an answer that has agreed from its beginning, and of text that
# follows a match somewhere in the middle.
_WRONG_WHOLE = (1 / 16, 1 / 64, 1 / 64, 1 / 64, 1 / 128, 1 / 128, 1 / 256, 1 / 256)
_WRONG_AFTER_MATCH = (1 / 2, 1 / 3, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 64)
# Weight of an initial estimate, in tokens.
_BELIEF = 8.0
_LAST_CLASS = len(_WRONG_WHOLE) - 1
# Fewest agreed tokens of the last size class, and the class of each smaller number.
_LAST_RUN = 1 << (_LAST_CLASS - 1)
_CLASSES = [run.bit_length() for run in range(_LAST_RUN)]


@dataclass(slots=True)
class OwnRecord:
    """A request's recent draft results: tokens tried and tokens accepted."""

    tried: float = 0.0
    agreed: float = 0.0


class AgreementRates:
    """Acceptance rates of one kind of draft, by the number of tokens that have agreed before.

    Those of earlier steps, of the match and of the draft itself count alike: text that has agreed
    for longer goes on agreeing. A few size classes need few samples, and leave no position of a
    draft unknown.

    Args:
        wrong: Initial probability of a wrong token, by size class of the tokens agreed.
    """

    def __init__(self, wrong: Sequence[float]) -> None:
        self._tried = [_BELIEF] * len(wrong)
        self._agreed = [_BELIEF * (1 - chance) for chance in wrong]

    def record(self, run: int, drafted: int, accepted: int) -> None:
        """Record one verify step whose draft followed `run` agreed tokens."""
        left = min(accepted + 1, drafted)
        while left > 0:
            place = min(run.bit_length(), _LAST_CLASS)
            size = left if place == _LAST_CLASS else min(left, (1 << place) - run)
            self._tried[place] += size
            self._agreed[place] += min(accepted, size)
            while self._tried[place] > _MAX_COUNT:
                self._tried[place] /= 2
                self._agreed[place] /= 2
            run, left, accepted = run + size, left - size, accepted - size

    def rates(self) -> list[float]:
        """Return the probability that the next token is right, by size class of those agreed."""
        return [agreed / tried for agreed, tried in zip(self._agreed, self._tried, strict=True)]


class Acceptance:
    """Acceptance rate by kind of draft and by the tokens that agreed before; not thread-safe.

    For one request, the kind and the request are combined as a beta posterior:
    (8 · kind's rate + the request's agreed) / (8 + the request's tried).
    """

    def __init__(self) -> None:
        whole = range(AFTER_DIFFERENCE)
        self._rates = {
            (DraftSource.RETRIEVAL, 0): AgreementRates(_WRONG_AFTER_MATCH),
            (DraftSource.PROMPT, 0): AgreementRates(_WRONG_AFTER_MATCH),
            **{(DraftSource.CACHE, trust): AgreementRates(_WRONG_WHOLE) for trust in whole},
            (DraftSource.CACHE, AFTER_DIFFERENCE): AgreementRates(_WRONG_AFTER_MATCH),
        }

    def record(self, draft: Draft, own: OwnRecord, drafted: int, accepted: int) -> None:
        """Record one verify step of one request."""
        self._rates[draft.source, draft.kind].record(draft.run, drafted, accepted)
        if draft.source is not DraftSource.CACHE:
            own.tried = own.tried * _OWN_FADING + min(accepted + 1, drafted)
            own.agreed = own.agreed * _OWN_FADING + accepted
            if own.tried > _MAX_OWN:
                own.agreed *= _MAX_OWN / own.tried
                own.tried = _MAX_OWN

    def survival(self, draft: Draft, own: OwnRecord, least: float = 0.0) -> list[float]:
        """Return, per position, the probability that the draft is right up to and including it.

        Args:
            draft: The draft.
            own: The request's record.
            least: The list ends before the first position with a probability below this.
        """
        # Another cached answer is tried after a wrong one: that one says nothing about it.
        own = OwnRecord() if draft.source is DraftSource.CACHE else own
        total = _KIND_WEIGHT + own.tried
        rates = self._rates[draft.source, draft.kind].rates()
        chances = [(_KIND_WEIGHT * rate + own.agreed) / total for rate in rates]
        # A hundred tokens for each of many requests: no loop in Python.
        begun = _CLASSES[draft.run : draft.run + len(draft.tokens)]
        by_token = [chances[place] for place in begun]
        by_token += [chances[-1]] * (len(draft.tokens) - len(begun))
        return list(takewhile(least.__le__, accumulate(by_token, mul)))
