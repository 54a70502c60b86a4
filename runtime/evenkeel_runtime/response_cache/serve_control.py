"""Decides by evidence whether near hits are served: from which cosine on, or not at all.

Each cosine of the ladder has its own count of verdicts ("the model, asked the same, would have said
something else") on hits at or above it, and a bound on the rate behind them that holds at every
moment. Near hits are served from the lowest cosine on whose bound is below the declared limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from evenkeel_runtime.response_cache.anytime import RiseDetector, upper_bound
from evenkeel_runtime.response_cache.settings_file import RoutePolicy

# Verdicts between false alarms of a risen rate, on average, at least.
_MEAN_RUN = 2000.0


@dataclass(slots=True)
class Rung:
    """The evidence on near hits from one cosine on.

    Attributes:
        similarity: The cosine.
        seen: Verdicts.
        wrong: Of them, those where the model said something else.
        bound: What the rate of wrong hits does not exceed; 1 without evidence.
    """

    similarity: float
    seen: int = 0
    wrong: int = 0
    bound: float = 1.0


@dataclass(frozen=True, slots=True)
class ControlChange:
    """The cosine from which on near hits are served has changed; None: they are drafts only.

    Attributes:
        reason: `certified`, `bound` (the evidence no longer holds the limit) or `risen` (the newest
            verdicts are worse than the limit; all evidence is started anew).
        bound: Of the cosine that holds now, else of the one given up.
    """

    route: str
    before: float | None
    after: float | None
    reason: str
    bound: float
    limit: float
    seen: int
    wrong: int

    def describe(self) -> str:
        """Return the change in one line."""
        names = ["draft" if s is None else f"serve from {s:g}" for s in (self.before, self.after)]
        return (
            f"{names[0]} -> {names[1]}: {self.reason}, bound {self.bound:.4f}, "
            f"limit {self.limit:g}, {self.wrong} wrong of {self.seen}"
        )


class ServeControl:
    """The evidence of one route.

    The probability that any bound is ever below its true rate is at most the policy's `alpha`: each
    cosine of the ladder is given its share. It holds from one start of the evidence to the next,
    for verdicts on a random share of hits, the same share at every cosine.

    Args:
        policy: The route's.
    """

    def __init__(self, policy: RoutePolicy) -> None:
        self._policy = policy
        self._alpha = policy.alpha / len(policy.similarities)
        self._start()
        self.threshold: float | None = None

    def _start(self) -> None:
        self.rungs = [Rung(similarity) for similarity in self._policy.similarities]
        self._detector = RiseDetector(self._policy.wrong_hit_limit, _MEAN_RUN)

    def may_serve(self, similarity: float) -> bool:
        """Whether a near hit of this cosine may be returned now."""
        return self.threshold is not None and similarity >= self.threshold

    def is_candidate(self, similarity: float) -> bool:
        """Whether a near hit of this cosine counts as evidence."""
        return similarity >= self._policy.similarities[0]

    @property
    def limit(self) -> float:
        """The declared limit of the wrong-hit rate."""
        return self._policy.wrong_hit_limit

    @property
    def verdict_ratio(self) -> float:
        """Share of candidates on which a verdict is sought: all while nothing is served."""
        return 1.0 if self.threshold is None else self._policy.replay_ratio

    @property
    def current(self) -> Rung:
        """The rung that is served from; the highest one while nothing is."""
        for rung in self.rungs:
            if rung.similarity == self.threshold:
                return rung
        return self.rungs[-1]

    def record(self, similarity: float, is_wrong: bool) -> ControlChange | None:
        """Take one verdict; returns what changed by it."""
        for rung in self.rungs:
            if similarity >= rung.similarity:
                rung.seen += 1
                rung.wrong += is_wrong
                rung.bound = upper_bound(rung.wrong, rung.seen, self._alpha)
        before, given_up = self.threshold, self.current
        was_served = self.may_serve(similarity)
        limit = self._policy.wrong_hit_limit
        held = [rung.similarity for rung in self.rungs if rung.bound < limit]
        self.threshold = held[0] if held else None
        if self.threshold != before:
            # What another cosine showed says nothing of this one.
            self._detector = RiseDetector(limit, _MEAN_RUN)
            has_loosened = before is None or (
                self.threshold is not None and self.threshold < before
            )
            rung = self.current if self.threshold is not None else given_up
            return self._describe(before, rung, "certified" if has_loosened else "bound")
        if was_served and self._detector.record(is_wrong):
            self._start()
            self.threshold = None
            return self._describe(before, given_up, "risen")
        return None

    def _describe(self, before: float | None, rung: Rung, reason: str) -> ControlChange:
        return ControlChange(
            route=self._policy.route,
            before=before,
            after=self.threshold,
            reason=reason,
            bound=rung.bound,
            limit=self._policy.wrong_hit_limit,
            seen=rung.seen,
            wrong=rung.wrong,
        )
