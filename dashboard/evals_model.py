"""What the evaluations page says: verdicts, intervals on a scale, scores side by side."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]

OVERALL = ("", "overall")
LEVELS = {
    "regressed": "bad",
    "inconclusive": "warning",
    "no worse": "good",
    "better": "good",
}
_MARGIN = re.compile(r"([+-]?\d+(?:\.\d+)?)%$")
# The scale of an interval reaches this much further than the widest thing on it.
_SCALE_MARGIN = 1.08


@dataclass(frozen=True, slots=True)
class Interval:
    """An effect with its 95 % interval as places on a bar, 0 at its left end and 1 at its right.

    Attributes:
        lower: Place of the lower limit; `upper` of the upper, `estimate` of the effect.
        margin: Place of the tolerated loss; None when the gate's text names none.
    """

    lower: float
    upper: float
    estimate: float
    margin: float | None


@dataclass(frozen=True, slots=True)
class SliceScores:
    """Both sides' scores on one slice.

    Attributes:
        name: Of the slice; "" is all items.
        scorer: What gave the scores.
        score_a: Mean of side A; None when nothing was scored. `score_b` likewise.
        num_scored: Scored answers of both sides.
        num_unscored: Answers that no scorer could judge.
        ttft_a_s: Median client TTFT of side A. `ttft_b_s` likewise.
    """

    name: str
    scorer: str
    score_a: float | None
    score_b: float | None
    num_scored: int
    num_unscored: int
    ttft_a_s: float | None
    ttft_b_s: float | None

    @property
    def delta(self) -> float | None:
        """B − A; None unless both were scored."""
        if self.score_a is None or self.score_b is None:
            return None
        return self.score_b - self.score_a


def run_verdict(verdicts: Sequence[str], slices: Sequence[str]) -> str:
    """Return what the gates of a run come to, as `evenkeel eval` decides it.

    One regression anywhere is a regression; otherwise the gates over all items decide, and one
    that cannot tell leaves the run inconclusive. "" when there is no gate.
    """
    if "regressed" in verdicts:
        return "regressed"
    pairs = zip(verdicts, slices, strict=True)
    overall = [verdict for verdict, name in pairs if name in OVERALL]
    for verdict in ("inconclusive", "better"):
        if verdict in overall:
            return verdict
    return "no worse" if overall else ""


def interval(gate: Row, scale: float) -> Interval | None:
    """Return the gate's interval on a bar from −scale to +scale; None if it was not measured."""
    if gate["estimate"] is None or gate["lower"] is None or gate["upper"] is None:
        return None

    def place(value: float) -> float:
        return min(max(0.5 + value / (2 * scale), 0.0), 1.0)

    tolerated = margin(gate["gate"])
    return Interval(
        lower=place(gate["lower"]),
        upper=place(gate["upper"]),
        estimate=place(gate["estimate"]),
        margin=None if tolerated is None else place(tolerated),
    )


def scale_of(gates: Sequence[Row]) -> float:
    """Return the effect at the ends of the bars, wide enough for every interval and margin."""
    reach = [
        abs(value)
        for gate in gates
        for value in (gate["lower"], gate["upper"], margin(gate["gate"]))
        if value is not None
    ]
    return max(reach, default=0.0) * _SCALE_MARGIN or 1.0


def margin(gate: str) -> float | None:
    """Return the tolerated effect that ends a gate's text: «p95_ttft<=+5%» → 0.05."""
    match = _MARGIN.search(gate)
    return float(match[1]) / 100 if match else None


def slice_scores(rows: Sequence[Row]) -> list[SliceScores]:
    """Return rows of one side and slice joined into one row a slice and scorer."""
    sides: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        sides.setdefault((row["slice"], row["scorer"]), {})[row["side"]] = row
    return [_joined(name, scorer, found) for (name, scorer), found in sides.items()]


def _joined(name: str, scorer: str, found: Mapping[str, Row]) -> SliceScores:
    a, b = found.get("A", {}), found.get("B", {})
    return SliceScores(
        name=name,
        scorer=scorer,
        score_a=a.get("mean_score"),
        score_b=b.get("mean_score"),
        num_scored=sum(row["num_scored"] for row in found.values()),
        num_unscored=sum(row["num_unscored"] for row in found.values()),
        ttft_a_s=a.get("client_ttft_p50_s"),
        ttft_b_s=b.get("client_ttft_p50_s"),
    )
