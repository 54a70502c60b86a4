"""Decide by evidence which near hits are served, if any.

Near hits are divided into kinds (hit_class.py). Within a kind, each step of the ladders of cosine
and lead has its own count of verdicts ("the model would have answered differently") on the hits at
or above it, and an anytime-valid bound on their rate. Hits of a kind are served from the step with
the most evidence among those whose bound is below the declared limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evenkeel_runtime.response_cache.confidence_sequence import RiseDetector, upper_bound
from evenkeel_runtime.response_cache.hit_class import KINDS, KNOWN_WORDS, SAME_WORDS, HitClass
from evenkeel_runtime.response_cache.settings_file import RoutePolicy
from evenkeel_runtime.response_cache.wrong_hits import WrongHits

# Minimum mean number of verdicts between false alarms of a risen rate.
_MEAN_RUN = 2000.0
# Shares of alpha: for what is served already, and of the rest for the kinds that most rewordings
# are of; the other kinds share what is left equally.
_SERVED_SHARE = 0.2
_KIND_SHARES = {SAME_WORDS: 0.7, KNOWN_WORDS: 0.15}
# Verdicts on traffic before a kind is served that has labelled evidence.
_LEAST_TRAFFIC = 20


@dataclass(frozen=True, slots=True)
class Counted:
    """Verdicts on one class: how many, and in how many of them the model's answer differed."""

    seen: int = 0
    wrong: int = 0


# The verdicts by kind, minimum cosine and minimum lead.
Counts = Mapping[tuple[str, float, float], Counted]


@dataclass(slots=True)
class Evidence:
    """The evidence on the near hits of one kind at or above a cosine and a lead.

    Attributes:
        kind: One of hit_class.KINDS.
        similarity: Minimum cosine.
        lead: Minimum lead over the nearest question with another answer.
        seen: Verdicts, labelled ones included.
        wrong: Verdicts in which the model's answer differed.
        labelled: Of `seen`, those from `evenkeel cache calibrate`.
        labelled_wrong: Of `wrong`, those from `evenkeel cache calibrate`.
        alpha: Highest probability that the bound is ever wrong.
        bound: Upper bound on the rate of wrong hits; 1 without evidence.
        is_served: Whether the kind's hits are served from here on.
    """

    kind: str
    similarity: float
    lead: float
    alpha: float
    seen: int = 0
    wrong: int = 0
    labelled: int = 0
    labelled_wrong: int = 0
    bound: float = 1.0
    is_served: bool = False

    @property
    def key(self) -> tuple[str, float, float]:
        """What identifies the class."""
        return self.kind, self.similarity, self.lead

    def add(self, seen: int, wrong: int) -> None:
        """Add verdicts, and renew the bound."""
        self.seen += seen
        self.wrong += wrong
        if self.seen:
            self.bound = upper_bound(self.wrong, self.seen, self.alpha)

    def covers(self, hit: HitClass) -> bool:
        """Whether the hit is of this class."""
        is_near = hit.similarity >= self.similarity and hit.lead >= self.lead
        return is_near and hit.kind == self.kind


@dataclass(frozen=True, slots=True)
class ControlChange:
    """A change of the near hits of one kind that are served; None serves drafts only.

    Attributes:
        before: Minimum cosine and lead before, as text.
        after: The same, from now on.
        reason: `certified`, `bound` (the evidence no longer supports the limit), `risen` (the
            latest verdicts exceed the limit), `spent` (more hits were wrong than the limit allows)
            or `file` (the file declares other terms); after the last three the evidence begins
            anew.
        bound: Bound of what is served now, else of what is given up.
        threshold: Lowest cosine that is served on the route; None while none is.
    """

    route: str
    kind: str
    before: str | None
    after: str | None
    reason: str
    bound: float
    limit: float
    seen: int
    wrong: int
    threshold: float | None

    def describe(self) -> str:
        """Return a one-line description of the change."""
        names = ["draft" if s is None else f"serve from {s}" for s in (self.before, self.after)]
        return (
            f"{self.kind}: {names[0]} -> {names[1]}: {self.reason}, bound {self.bound:.4f}, "
            f"limit {self.limit:g}, {self.wrong} wrong of {self.seen}"
        )


class ServeControl:
    """The evidence of one route.

    The probability that any bound is ever below its true rate is at most the policy's `alpha`: each
    class gets its share (Bonferroni with weights fixed in advance), and so does `WrongHits`. It
    holds from one reset of the evidence to the next, for verdicts on a random share of the hits of
    a kind. Labelled verdicts count as traffic's own; for traffic unlike the labels, `WrongHits`
    bounds what is served.

    Args:
        policy: The route's policy.
        labelled: Labelled verdicts to begin with.
        counted: Verdicts of earlier runs.
    """

    def __init__(
        self, policy: RoutePolicy, labelled: Counts | None = None, counted: Counts | None = None
    ) -> None:
        self._policy = policy
        self._start()
        self._add(labelled or {}, counted or {})
        for kind in KINDS:
            self._choose(kind)

    def _start(self) -> None:
        policy = self._policy
        steps = [(s, lead) for s in policy.similarities for lead in policy.leads]
        alpha = policy.alpha * (1 - _SERVED_SHARE)
        others = (1 - sum(_KIND_SHARES.values())) / (len(KINDS) - len(_KIND_SHARES))
        self.evidence: dict[str, list[Evidence]] = {}
        for kind in KINDS:
            # Of the same words, cosine and lead say nothing more.
            own = steps[:1] if kind == SAME_WORDS else steps
            share = alpha * _KIND_SHARES.get(kind, others) / len(own)
            self.evidence[kind] = [Evidence(kind, s, lead, share) for s, lead in own]
        self.served: dict[str, Evidence] = {}
        self.wrong_hits = WrongHits(
            policy.wrong_hit_limit, policy.alpha * _SERVED_SHARE, policy.replay_ratio
        )
        self._detectors: dict[str, RiseDetector] = {}

    def _add(self, labelled: Counts, counted: Counts) -> None:
        for item in self.classes:
            first = labelled.get(item.key, Counted())
            more = counted.get(item.key, Counted())
            item.labelled, item.labelled_wrong = first.seen, first.wrong
            item.add(first.seen + more.seen, first.wrong + more.wrong)

    def configure(
        self, policy: RoutePolicy, find_labels: Callable[[RoutePolicy], Counts] = lambda _: {}
    ) -> ControlChange | None:
        """Apply a changed policy; return what it changes in serving, if anything.

        Evidence collected for other classes, another limit or another `alpha` is discarded. Labels
        count again, except those of kinds that were given up.

        Args:
            policy: The policy.
            find_labels: Returns the labelled verdicts for a policy.
        """
        before, given_up = next(iter(self.served.values()), None), self.current
        keeps = _find_terms(policy) == _find_terms(self._policy)
        self._policy = policy
        if keeps:
            self.wrong_hits.least_ratio = policy.replay_ratio
            return None
        kinds = {item.kind for item in self.classes if item.labelled}
        self._start()
        if kinds:
            self._add({k: c for k, c in find_labels(policy).items() if k[0] in kinds}, {})
        return None if before is None else self._describe(given_up, None, given_up, "file")

    @property
    def classes(self) -> list[Evidence]:
        """All classes."""
        return [item for items in self.evidence.values() for item in items]

    @property
    def route(self) -> str:
        """The route in the cache's file."""
        return self._policy.route

    @property
    def similarities(self) -> tuple[float, ...]:
        """The minimum cosines of the classes."""
        return self._policy.similarities

    @property
    def leads(self) -> tuple[float, ...]:
        """The minimum leads of the classes."""
        return self._policy.leads

    @property
    def limit(self) -> float:
        """The declared limit of the wrong-hit rate."""
        return self._policy.wrong_hit_limit

    @property
    def threshold(self) -> float | None:
        """The lowest cosine that is served; None while none is."""
        return min((item.similarity for item in self.served.values()), default=None)

    @property
    def current(self) -> Evidence:
        """The served class with the highest bound, else the class that is closest to it."""
        if self.served:
            return max(self.served.values(), key=lambda item: item.bound)
        return min(self.classes, key=lambda item: item.bound)

    def find(self, hit: HitClass) -> Evidence | None:
        """Return the evidence by which a hit is served, else the best there is on its like."""
        served = self.served.get(hit.kind)
        if served is not None and served.covers(hit):
            return served
        covering = [item for item in self.evidence[hit.kind] if item.covers(hit)]
        return min(covering, key=lambda item: item.bound, default=None)

    def may_serve(self, hit: HitClass) -> bool:
        """Whether a near hit of this class may be served now."""
        served = self.served.get(hit.kind)
        return served is not None and served.covers(hit) and self.wrong_hits.may_serve

    def is_candidate(self, hit: HitClass) -> bool:
        """Whether a near hit of this class counts as evidence."""
        return any(item.covers(hit) for item in self.evidence[hit.kind])

    def verdict_ratio(self, kind: str) -> float:
        """Share of a kind's candidates to get a verdict on: all while none is served."""
        return self.wrong_hits.replay_ratio if kind in self.served else 1.0

    def record(
        self, hit: HitClass, is_wrong: bool, replayed_at: float | None = None
    ) -> ControlChange | None:
        """Add one verdict; return the resulting change, if any.

        Args:
            hit: The class of the near hit.
            is_wrong: Whether the model answered differently.
            replayed_at: For a hit that was served, the share at which it was replayed.
        """
        for item in self.evidence[hit.kind]:
            if item.covers(hit):
                item.add(1, int(is_wrong))
        if replayed_at is not None and is_wrong:
            self.wrong_hits.record_wrong(hit.kind, replayed_at)
            if self.wrong_hits.is_spent:
                return self._give_up(hit.kind, "spent")
        before = self.served.get(hit.kind)
        was_covered = before is not None and before.covers(hit)
        self._choose(hit.kind)
        after = self.served.get(hit.kind)
        if after is not before:
            return self._describe(before, after, after or before, _reason(before, after))
        detector = self._detectors.get(hit.kind)
        if was_covered and detector is not None and detector.record(is_wrong):
            return self._give_up(hit.kind, "risen")
        return None

    def record_unjudged(self, hit: HitClass, replayed_at: float) -> ControlChange | None:
        """Count a served hit as wrong whose replay ended without a verdict; return the change.

        Replays may fail for wrong hits only: a comparison of equal answers needs no embedding.
        """
        self.wrong_hits.record_wrong(hit.kind, replayed_at)
        return self._give_up(hit.kind, "spent") if self.wrong_hits.is_spent else None

    def _choose(self, kind: str) -> None:
        held = [
            item
            for item in self.evidence[kind]
            if item.bound < self.limit
            and (not item.labelled or item.seen - item.labelled >= _LEAST_TRAFFIC)
        ]
        best = max(held, key=lambda item: item.seen, default=None)
        now = self.served.get(kind)
        if now is not None and now in held and best is not None:
            # Change only for more evidence: a step with as much has the same hits.
            best = best if best.seen > now.seen else now
        if best is now:
            return
        for item in self.evidence[kind]:
            item.is_served = item is best
        if best is None:
            del self.served[kind]
            self._detectors.pop(kind, None)
            return
        self.served[kind] = best
        # Evidence from another class does not apply to this one.
        self._detectors[kind] = RiseDetector(self.limit, _MEAN_RUN)

    def _give_up(self, kind: str, reason: str) -> ControlChange:
        """Serve nothing of the kinds that were wrong, and begin their evidence anew."""
        given_up = self.served.get(kind) or self.evidence[kind][0]
        change = self._describe(given_up, None, given_up, reason)
        for bad in {kind, *(self.wrong_hits.wrong_kinds if reason == "spent" else ())}:
            for item in self.evidence[bad]:
                item.seen = item.wrong = item.labelled = item.labelled_wrong = 0
                item.bound, item.is_served = 1.0, False
            self.served.pop(bad, None)
            self._detectors.pop(bad, None)
        if reason == "spent":
            self.wrong_hits.restart()
        return change

    def _describe(
        self, before: Evidence | None, after: Evidence | None, item: Evidence | None, reason: str
    ) -> ControlChange:
        assert item is not None  # A change has a class before or after it.
        return ControlChange(
            route=self._policy.route,
            kind=item.kind,
            before=_name(before),
            after=_name(after),
            reason=reason,
            bound=item.bound,
            limit=self.limit,
            seen=item.seen,
            wrong=item.wrong,
            threshold=self.threshold,
        )


def _name(item: Evidence | None) -> str | None:
    return None if item is None else f"cosine {item.similarity:g}, lead {item.lead:g}"


def _reason(before: Evidence | None, after: Evidence | None) -> str:
    if after is None:
        return "bound"
    is_wider = before is None or (
        after.similarity <= before.similarity and after.lead <= before.lead
    )
    return "certified" if is_wider else "bound"


def _find_terms(policy: RoutePolicy) -> tuple[object, ...]:
    """Return what evidence is collected for."""
    return policy.similarities, policy.leads, policy.wrong_hit_limit, policy.alpha
