"""Estimate how likely the model is to accept a drafted token, from past results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evenkeel_runtime.speculation.cached_draft import AFTER_DIFFERENCE
from evenkeel_runtime.speculation.sources import NUM_STRENGTHS, Draft, DraftSource

# A new kind of draft starts as if one token had been accepted and one rejected.
_PRIOR = 1.0
# Counts above this are halved, so that old results fade.
_MAX_COUNT = 400.0
# Number of tokens after which a request's own record weighs as much as its kind's.
_KIND_WEIGHT = 8.0
# Factor applied to a request's own record at each verify step.
_OWN_FADING = 0.9


@dataclass(slots=True)
class OwnRecord:
    """A request's recent draft results: tokens tried and tokens accepted."""

    tried: float = 0.0
    agreed: float = 0.0


# Initial estimates of the probability that a cached answer's next token is wrong, by tokens that
# have agreed (0, 1, 2-3, 4-7, …): while the model has always agreed, and after it has differed.
_WRONG_WHOLE = (1 / 16, 1 / 64, 1 / 64, 1 / 64, 1 / 128, 1 / 128, 1 / 256, 1 / 256)
_WRONG_AFTER_DIFFERENCE = (1 / 2, 1 / 3, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 64)
# Weight of an initial estimate, in tokens.
_BELIEF = 8.0


class AnswerAcceptance:
    """Acceptance rate of cached answers of one kind, by the number of tokens that have agreed.

    Most wrong answers differ within the first few tokens, so the rate depends on the tokens that
    have agreed in all steps together. A few size classes need few samples.

    Args:
        wrong: Initial probability of a wrong token, by size class of the tokens agreed.
    """

    def __init__(self, wrong: Sequence[float]) -> None:
        self._tried = [_BELIEF] * len(wrong)
        self._agreed = [_BELIEF * (1 - chance) for chance in wrong]

    def record(self, run: int, drafted: int, accepted: int) -> None:
        """Record one verify step whose draft followed `run` agreed tokens."""
        for position in range(min(accepted + 1, drafted)):
            place = self._class_of(run + position)
            self._tried[place] += 1
            self._agreed[place] += position < accepted
            if self._tried[place] > _MAX_COUNT:
                self._tried[place] /= 2
                self._agreed[place] /= 2

    def rate(self, run: int) -> float:
        """Return the probability that the token after `run` agreed ones is right."""
        place = self._class_of(run)
        return self._agreed[place] / self._tried[place]

    def _class_of(self, run: int) -> int:
        return min(run.bit_length(), len(self._tried) - 1)


class Acceptance:
    """Acceptance rate by kind of draft (source and strength) and position; not thread-safe.

    The rate at a position is P(agreed | all before agreed): tokens after a rejected one were not
    tried. For one request, the kind and the request are combined as a beta posterior:
    (8 · kind's rate + the request's agreed) / (8 + the request's tried). The rates of each kind of
    cached answer are an `AnswerAcceptance`.

    Args:
        max_tokens: Longest draft of the other sources.
    """

    def __init__(self, max_tokens: int) -> None:
        kinds = [(source, strength) for source in DraftSource for strength in range(NUM_STRENGTHS)]
        self._tried = {kind: [2 * _PRIOR] * max_tokens for kind in kinds}
        self._agreed = {kind: [_PRIOR] * max_tokens for kind in kinds}
        self._answers = [AnswerAcceptance(_WRONG_WHOLE) for _ in range(AFTER_DIFFERENCE)]
        self._answers.append(AnswerAcceptance(_WRONG_AFTER_DIFFERENCE))

    def record(self, draft: Draft, own: OwnRecord, drafted: int, accepted: int) -> None:
        """Record one verify step of one request."""
        num_tried = min(accepted + 1, drafted)
        if draft.source is DraftSource.CACHE:
            self._answers[draft.strength].record(draft.run, drafted, accepted)
            return
        kind = draft.source, draft.strength
        tried, agreed = self._tried[kind], self._agreed[kind]
        for position in range(num_tried):
            tried[position] += 1
            agreed[position] += position < accepted
            if tried[position] > _MAX_COUNT:
                tried[position] /= 2
                agreed[position] /= 2
        own.tried = own.tried * _OWN_FADING + num_tried
        own.agreed = own.agreed * _OWN_FADING + accepted

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
        survival = []
        right = 1.0
        for kind_rate in self._rates(draft):
            right *= (_KIND_WEIGHT * kind_rate + own.agreed) / total
            if right < least:
                break
            survival.append(right)
        return survival

    def _rates(self, draft: Draft) -> Iterator[float]:
        if draft.source is DraftSource.CACHE:
            answers = self._answers[draft.strength]
            return map(answers.rate, range(draft.run, draft.run + len(draft.tokens)))
        kind = draft.source, draft.strength
        tried, agreed = self._tried[kind], self._agreed[kind]
        return (a / t for a, t, _ in zip(agreed, tried, draft.tokens, strict=False))
