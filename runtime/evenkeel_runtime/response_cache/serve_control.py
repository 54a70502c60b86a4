"""Choose the minimum cosine at which near hits are served, if any, from measured evidence.

Each cosine of the ladder has its own count of verdicts ("the model would have answered
differently") on hits at or above it, and an anytime-valid bound on their rate. Near hits are served
from the lowest cosine whose bound is below the declared limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from evenkeel_runtime.response_cache.anytime import RiseDetector, upper_bound
from evenkeel_runtime.response_cache.settings_file import RoutePolicy

# Minimum mean number of verdicts between false alarms of a risen rate.
_MEAN_RUN = 2000.0


@dataclass(slots=True)
class Rung:
    """The evidence on near hits at or above one cosine.

    Attributes:
        similarity: The cosine.
        seen: Verdicts.
        wrong: Verdicts in which the model's answer differed.
        bound: Upper bound on the rate of wrong hits; 1 without evidence.
    """

    similarity: float
    seen: int = 0
    wrong: int = 0
    bound: float = 1.0


@dataclass(frozen=True, slots=True)
class ControlChange:
    """A change of the minimum cosine for serving near hits; None serves drafts only.

    Attributes:
        reason: `certified`, `bound` (the evidence no longer supports the limit), `risen` (the
            latest verdicts exceed the limit; all evidence is reset) or `file` (the file declares
            other terms; all evidence is reset).
        bound: Bound at the new cosine, else at the one given up.
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
        """Return a one-line description of the change."""
        names = ["draft" if s is None else f"serve from {s:g}" for s in (self.before, self.after)]
        return (
            f"{names[0]} -> {names[1]}: {self.reason}, bound {self.bound:.4f}, "
            f"limit {self.limit:g}, {self.wrong} wrong of {self.seen}"
        )


class ServeControl:
    """The evidence of one route.

    The probability that any bound is ever below its true rate is at most the policy's `alpha`: each
    cosine of the ladder gets its share. It holds from one reset of the evidence to the next, for
    verdicts on a random share of hits, the same share at every cosine.

    Args:
        policy: The route's policy.
    """

    def __init__(self, policy: RoutePolicy) -> None:
        self._policy = policy
        self._alpha = policy.alpha / len(policy.similarities)
        self._start()
        self.threshold: float | None = None

    def _start(self) -> None:
        self.rungs = [Rung(similarity) for similarity in self._policy.similarities]
        self._detector = RiseDetector(self._policy.wrong_hit_limit, _MEAN_RUN)

    def configure(self, policy: RoutePolicy) -> ControlChange | None:
        """Apply a changed policy; return what it changes in serving, if anything.

        Evidence collected for other similarities, another limit or another `alpha` is discarded.
        """
        before, given_up = self.threshold, self.current
        keeps = _find_terms(policy) == _find_terms(self._policy)
        self._policy = policy
        if keeps:
            return None
        self._alpha = policy.alpha / len(policy.similarities)
        self._start()
        self.threshold = None
        return None if before is None else self._describe(before, given_up, "file")

    def may_serve(self, similarity: float) -> bool:
        """Whether a near hit with this cosine may be served now."""
        return self.threshold is not None and similarity >= self.threshold

    def is_candidate(self, similarity: float) -> bool:
        """Whether a near hit with this cosine counts as evidence."""
        return similarity >= self._policy.similarities[0]

    @property
    def limit(self) -> float:
        """The declared limit of the wrong-hit rate."""
        return self._policy.wrong_hit_limit

    @property
    def verdict_ratio(self) -> float:
        """Share of candidates to get a verdict on: all while nothing is served."""
        return 1.0 if self.threshold is None else self._policy.replay_ratio

    @property
    def current(self) -> Rung:
        """The rung currently served from; the highest while nothing is served."""
        for rung in self.rungs:
            if rung.similarity == self.threshold:
                return rung
        return self.rungs[-1]

    def record(self, similarity: float, is_wrong: bool) -> ControlChange | None:
        """Add one verdict; return the resulting change, if any."""
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
            # Evidence from another cosine does not apply to this one.
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


def _find_terms(policy: RoutePolicy) -> tuple[object, ...]:
    """Return what evidence is collected for."""
    return policy.similarities, policy.wrong_hit_limit, policy.alpha
