"""Estimate how likely the model is to accept a drafted token, from past results."""

from __future__ import annotations

from dataclasses import dataclass

from evenkeel_runtime.speculation.sources import NUM_STRENGTHS, DraftSource

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


class Acceptance:
    """Acceptance rate by kind of draft (source and strength) and position; not thread-safe.

    The rate at a position is P(agreed | all before agreed): tokens after a rejected one were not
    tried. For one request, the kind and the request are combined as a beta posterior:
    (8 · kind's rate + the request's agreed) / (8 + the request's tried).

    Args:
        max_tokens: Longest draft.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        kinds = [(source, strength) for source in DraftSource for strength in range(NUM_STRENGTHS)]
        self._tried = {kind: [2 * _PRIOR] * max_tokens for kind in kinds}
        self._agreed = {kind: [_PRIOR] * max_tokens for kind in kinds}

    def record(
        self, source: DraftSource, strength: int, own: OwnRecord, drafted: int, accepted: int
    ) -> None:
        """Record one verify step of one request."""
        tried, agreed = self._tried[source, strength], self._agreed[source, strength]
        num_tried = min(accepted + 1, drafted)
        for position in range(num_tried):
            tried[position] += 1
            agreed[position] += position < accepted
            if tried[position] > _MAX_COUNT:
                tried[position] /= 2
                agreed[position] /= 2
        own.tried = own.tried * _OWN_FADING + num_tried
        own.agreed = own.agreed * _OWN_FADING + accepted

    def survival(
        self, source: DraftSource, strength: int, own: OwnRecord, length: int, least: float = 0.0
    ) -> list[float]:
        """Return, per position, the probability that the draft is right up to and including it.

        Args:
            source: Source of the draft.
            strength: How much text agreed before it.
            own: The request's record.
            length: Tokens in the draft.
            least: The list ends before the first position with a probability below this.
        """
        tried, agreed = self._tried[source, strength], self._agreed[source, strength]
        total = _KIND_WEIGHT + own.tried
        survival = []
        right = 1.0
        for position in range(min(length, self._max_tokens)):
            kind_rate = agreed[position] / tried[position]
            right *= (_KIND_WEIGHT * kind_rate + own.agreed) / total
            if right < least:
                break
            survival.append(right)
        return survival
