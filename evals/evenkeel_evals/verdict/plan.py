"""Plans a run: what it can and cannot detect, before any tokens are spent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scipy.stats import norm

from evenkeel.errors import CannotMeasureError
from evenkeel_evals.ask.answers import LatencyMetric
from evenkeel_evals.stats.clusters import ENOUGH_CHANGED
from evenkeel_evals.stats.noninferiority import noninferior_accuracy
from evenkeel_evals.stats.power import pairs_to_show_noninferiority, smallest_detectable_difference
from evenkeel_evals.verdict.gates import (
    AccuracyGate,
    CostGate,
    ErrorGate,
    Gate,
    LatencyGate,
    PreferenceGate,
    name_of,
)
from evenkeel_evals.verdict.latency_effects import MIN_PAIRS, min_pairs_for

POWER = 0.8
ALPHA_SEEN = 0.05
ALPHA_MARGIN = 0.05
# One-sided level of "regressed"; a candidate that loses every pair must be able to reach it.
ALPHA_WORSE = 0.025
# Signs of whole clusters are flipped, so k clusters reach a p-value of 2⁻ᵏ at best.
CLUSTERS_TO_PASS = math.ceil(math.log2(1 / ALPHA_MARGIN))
# Share of pairs in which a judge prefers one answer in both orders.
ASSUMED_DECIDED = 0.5
# Standard deviation of (B − A) / mean(A) across pairs, until the costs are known.
ASSUMED_COST_SCATTER = 0.3


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Assumptions of a plan: defaults until `evenkeel eval calibrate` has measured them here.

    Attributes:
        discordance: Share of pairs in which exactly one answer is right.
        scatter: Standard deviation of log(B/A) across pairs, for each latency.
        noise_floor: Effect that one in twenty runs without a change exceeds, by the name of the
            gate's measure, for `floor_pairs` pairs.
        floor_pairs: Number of pairs the floor was measured with.
        is_measured: Whether they were measured here.
    """

    discordance: float = 0.10
    scatter: Mapping[LatencyMetric, float] = field(
        default_factory=lambda: dict.fromkeys(LatencyMetric, 0.30)
    )
    noise_floor: Mapping[str, float] = field(default_factory=dict)
    floor_pairs: int = 0
    is_measured: bool = False

    def floor_of(self, gate: Gate, num_pairs: int) -> float | None:
        """Return the noise floor of a gate; it falls with the square root of the pairs."""
        floor = self.noise_floor.get(name_of(gate))
        return None if floor is None else floor * math.sqrt(self.floor_pairs / num_pairs)


@dataclass(frozen=True, slots=True)
class GatePlan:
    """What one gate can be expected to detect with the available pairs.

    Attributes:
        gate: The gate as it was written.
        num_pairs: Available pairs.
        num_clusters: Clusters that they form.
        smallest_loss: Smallest true loss detected with 80% power, a fraction; None if none.
        pairs_to_pass: Pairs needed to show with 80% power that an unchanged candidate is within
            the margin; None if no number is enough.
        can_pass: Whether an unchanged candidate passes in the best case.
        can_fail: Whether a candidate that loses every pair is called regressed.
        pairs_needed: Pairs from which both are possible; None if no number is enough.
        clusters_needed: Clusters from which both are possible.
        noise_floor: Noise floor of runs without a change, if it was measured.
        margin: The gate's tolerance.
        unit: What follows a loss in percent: ` points` of accuracy, or `%` of the baseline.
        assumption: The assumption behind the figures.
    """

    gate: str
    num_pairs: int
    smallest_loss: float | None
    pairs_to_pass: int | None
    can_pass: bool
    can_fail: bool
    pairs_needed: int | None
    num_clusters: int
    clusters_needed: int
    noise_floor: float | None
    margin: float
    unit: str
    assumption: str

    @property
    def is_below_noise(self) -> bool:
        """Return whether runs without a change vary by more than the gate tolerates."""
        return self.noise_floor is not None and self.margin < self.noise_floor

    @property
    def refusal(self) -> str | None:
        """Return why this gate should not be run with these pairs, or None."""
        needed = (
            "an unchanged candidate cannot pass a margin of 0"
            if self.pairs_needed is None
            else f"it needs {self.pairs_needed:,}"
            if self.num_clusters == self.num_pairs
            else f"it needs {self.pairs_needed:,} in {self.clusters_needed} clusters or more"
        )
        pairs = self._pairs
        if not self.can_pass and not self.can_fail:
            return f"{self.gate} can neither pass nor fail with {pairs}; {needed}"
        if not self.can_fail:
            return f"{self.gate} cannot fail with {pairs}; {needed}"
        if not self.can_pass:
            return f"{self.gate} cannot pass with {pairs} unless the candidate is better; {needed}"
        if self.is_below_noise:
            floor = f"{(self.noise_floor or 0) * 100:.1f}{self.unit}"
            return (
                f"{self.gate} is below the noise floor of {floor} with {pairs}; "
                "use a wider margin or more pairs"
            )
        return None

    @property
    def _pairs(self) -> str:
        if self.num_clusters == self.num_pairs:
            return f"{self.num_pairs} pairs"
        clusters = "1 cluster" if self.num_clusters == 1 else f"{self.num_clusters} clusters"
        return f"{self.num_pairs} pairs in {clusters}"

    def describe(self) -> str:
        """Return one line for a reader."""
        loss = (
            "nothing"
            if self.smallest_loss is None
            else f"losses of {self.smallest_loss * 100:.1f}{self.unit} or more"
        )
        if self.pairs_to_pass is None:
            passing = "no number of pairs shows that an unchanged candidate is within a margin of 0"
        elif self.pairs_to_pass > self.num_pairs:
            passing = f"'no worse' takes about {self.pairs_to_pass:,} pairs if nothing changed"
        else:
            passing = f"enough for 'no worse' if nothing changed ({self.pairs_to_pass:,})"
        return f"{self.gate}: {self._pairs} can detect {loss}; {passing} [{self.assumption}]"

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "gate": self.gate,
            "num_pairs": self.num_pairs,
            "num_clusters": self.num_clusters,
            "smallest_loss": self.smallest_loss,
            "pairs_to_pass": self.pairs_to_pass,
            "can_pass": self.can_pass,
            "can_fail": self.can_fail,
            "pairs_needed": self.pairs_needed,
            "clusters_needed": self.clusters_needed,
            "noise_floor": self.noise_floor,
            "assumption": self.assumption,
            "refusal": self.refusal,
        }


@dataclass(frozen=True, slots=True)
class _Size:
    """How much a run has: pairs, the clusters that they form, and gates that are tested."""

    num_pairs: int
    num_clusters: int
    num_gates: int

    @property
    def clusters_to_fail(self) -> int:
        return math.ceil(math.log2(self.num_gates / ALPHA_WORSE))


def plan_gates(
    gates: Sequence[Gate],
    num_pairs: int,
    assumptions: Assumptions | None = None,
    num_clusters: int | None = None,
) -> list[GatePlan]:
    """Return what each gate can detect, at 80% power and the 5% level.

    Errors are judged by the observed difference and have no entry. Accuracy uses the exact power
    of the exact McNemar test; shifts use the normal sample-size formula; quantiles use the same
    for the pairs around the quantile. Losses are those for independent items; whether a verdict is
    possible at all also takes the clusters into account.

    Args:
        gates: The gates.
        num_pairs: Pairs, each of an item of its own.
        assumptions: The noise; None for defaults.
        num_clusters: Clusters of those items; None if each is its own.
    """
    known = assumptions or Assumptions()
    tested = [gate for gate in gates if not isinstance(gate, ErrorGate)]
    size = _Size(num_pairs, num_pairs if num_clusters is None else num_clusters, len(tested))
    return [
        _plan_accuracy(gate, size, known)
        if isinstance(gate, AccuracyGate)
        else _plan_ratio(gate, size, known)
        for gate in tested
    ]


def refuse_undecidable(plan: Sequence[GatePlan]) -> None:
    """Raise, before any requests are made, if a gate cannot be decided or is below the noise.

    Raises:
        CannotMeasureError: If there is such a gate.
    """
    for line in plan:
        if line.refusal and (line.is_below_noise or not (line.can_pass or line.can_fail)):
            raise CannotMeasureError(
                f"{line.refusal} (no requests were made; --allow-inconclusive runs anyway)"
            )


def _plan_accuracy(gate: AccuracyGate, size: _Size, assumed: Assumptions) -> GatePlan:
    n = size.num_pairs
    is_preference = isinstance(gate, PreferenceGate)
    discordance = ASSUMED_DECIDED if is_preference else assumed.discordance
    to_pass = _pairs_for_margin(gate.margin) if gate.margin > 0 else None
    to_fail = size.clusters_to_fail
    # With fewer, a cluster counts as one item.
    clusters_to_pass = 0 if to_pass is None else min(to_pass, ENOUGH_CHANGED)
    return GatePlan(
        gate=gate.text,
        num_pairs=n,
        smallest_loss=smallest_detectable_difference(n, discordance, ALPHA_SEEN, POWER),
        # The normal formula knows no least number: if nothing ever changes, it says 0.
        pairs_to_pass=None
        if to_pass is None
        else max(
            to_pass,
            pairs_to_show_noninferiority(gate.margin, discordance, ALPHA_MARGIN, POWER),
        ),
        can_pass=to_pass is not None and n >= to_pass and size.num_clusters >= clusters_to_pass,
        can_fail=size.num_clusters >= to_fail,
        pairs_needed=None if to_pass is None else max(to_pass, to_fail),
        num_clusters=size.num_clusters,
        clusters_needed=max(clusters_to_pass, to_fail),
        noise_floor=assumed.floor_of(gate, n),
        margin=gate.margin,
        unit=" points",
        assumption=f"if the judge decides {discordance:.0%} of the pairs"
        if is_preference
        else f"{_source(assumed)}{discordance * 100:.3g}% of the answers change",
    )


def _pairs_for_margin(margin: float) -> int:
    """Return the pairs at which the score test shows the margin if no answer changed."""
    low, high = 1, 2
    while noninferior_accuracy(high, 0, 0, margin).p > ALPHA_MARGIN:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if noninferior_accuracy(middle, 0, 0, margin).p > ALPHA_MARGIN:
            low = middle
        else:
            high = middle
    return high


def _plan_ratio(gate: LatencyGate | CostGate, size: _Size, assumed: Assumptions) -> GatePlan:
    n, to_fail = size.num_pairs, size.clusters_to_fail
    minimum = max(MIN_PAIRS, to_fail)
    to_pass = CLUSTERS_TO_PASS
    if isinstance(gate, CostGate):
        # A t test, which needs a spread.
        to_pass = 2
        spread = scatter = ASSUMED_COST_SCATTER
        assumption = f"if B − A varies by {spread * 100:.3g}% of the mean cost from pair to pair"
    else:
        spread = assumed.scatter[gate.metric]
        scatter = spread * _error_factor(gate.quantile)
        assumption = f"{_source(assumed)}B/A varies by {spread * 100:.3g}% from pair to pair"
        if gate.quantile is not None:
            minimum = min_pairs_for(gate.quantile)
    seen = (float(norm.ppf(1 - ALPHA_SEEN / 2)) + float(norm.ppf(POWER))) * scatter
    passed = (float(norm.ppf(1 - ALPHA_MARGIN)) + float(norm.ppf(POWER))) * scatter
    return GatePlan(
        gate=gate.text,
        num_pairs=n,
        smallest_loss=math.expm1(seen / math.sqrt(n)) if n >= minimum else None,
        pairs_to_pass=max(minimum, math.ceil((passed / math.log1p(gate.margin)) ** 2))
        if gate.margin > 0
        else None,
        can_pass=gate.margin > 0 and n >= minimum and size.num_clusters >= to_pass,
        can_fail=n >= minimum and size.num_clusters >= to_fail,
        pairs_needed=minimum if gate.margin > 0 else None,
        num_clusters=size.num_clusters,
        clusters_needed=max(to_pass, to_fail),
        noise_floor=assumed.floor_of(gate, n),
        margin=gate.margin,
        unit="%",
        assumption=assumption,
    )


def _source(assumed: Assumptions) -> str:
    return "measured: " if assumed.is_measured else "if "


def _error_factor(quantile: float | None) -> float:
    """Return the ratio of a gate's standard error to that of a mean over all pairs.

    √(π/3) for a Hodges-Lehmann shift; a quantile uses only the share 2·min(q, 1 − q) of the pairs.
    """
    share = 1.0 if quantile is None else 2 * min(quantile, 1 - quantile)
    return math.sqrt(math.pi / 3 / share)
