"""Computes the evals page: intervals on a scale, scores by slice, and live shares."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from math import sqrt
from typing import Any

from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.draw.tiles import Interval

Row = Mapping[str, Any]

LEVELS = {
    "regressed": "bad",
    "inconclusive": "warning",
    "worse": "warning",
    "no worse": "good",
    "better": "good",
}
_MARGIN = re.compile(r"([+-]?\d+(?:\.\d+)?)%$")
# The scale extends this much beyond the widest interval or margin on it.
_SCALE_MARGIN = 1.08


@dataclass(frozen=True, slots=True)
class SliceScores:
    """Both sides' scores on one slice.

    Attributes:
        name: Name of the slice; "" is all items.
        scorer: Name of the scorer.
        score_a: Mean of side A over items; None if nothing was scored. `score_b` likewise.
        num_scored: Scored answers of both sides, repeats included.
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
        """Score of B minus A; None unless both were scored."""
        if self.score_a is None or self.score_b is None:
            return None
        return self.score_b - self.score_a


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
    """Return the effect at the ends of the bars, large enough for every interval and margin."""
    reach = [
        abs(value)
        for gate in gates
        for value in (gate["lower"], gate["upper"], margin(gate["gate"]))
        if value is not None
    ]
    return max(reach, default=0.0) * _SCALE_MARGIN or 1.0


def margin(gate: str) -> float | None:
    """Return the tolerated effect at the end of a gate's text: "p95_ttft<=+5%" → 0.05."""
    match = _MARGIN.search(gate)
    return float(match[1]) / 100 if match else None


def slice_scores(rows: Sequence[Row]) -> list[SliceScores]:
    """Return rows per side and slice, joined into one row per slice and scorer."""
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


@dataclass(frozen=True, slots=True)
class EstimatedShare:
    """A share of all requests, estimated from a sample.

    Attributes:
        value: Σ w·right / Σ w; None if nothing was scored.
        lower: Lower 95% Wilson limit at the effective number of answers; `upper` is the other.
        num_scored: Answers scored.
    """

    value: float | None
    lower: float | None
    upper: float | None
    num_scored: int


def weighted_share(rows: Sequence[Row]) -> EstimatedShare:
    """Return the share of rows of `live_eval_series`, as `evenkeel eval live` computes it."""
    weight = sum(row["weight"] for row in rows)
    num_scored = sum(row["num_scored"] for row in rows)
    if not weight:
        return EstimatedShare(None, None, None, num_scored)
    share = sum(row["weight_right"] for row in rows) / weight
    n = weight**2 / sum(row["weight_squared"] for row in rows)
    z = 1.959964
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # At none and at all, a bound is exact; rounding errors would show 99.99999%.
    lower = 0.0 if share == 0 else max(0.0, centre - half)
    upper = 1.0 if share == 1 else min(1.0, centre + half)
    return EstimatedShare(share, lower, upper, num_scored)


def answer_text(stored: str) -> str:
    """Return the text of stored messages; "" for anything else."""
    try:
        turns = [
            "".join(str(part["content"]) for part in turn["parts"] if "content" in part)
            for turn in json.loads(stored)
            if turn["role"] not in ("system", "developer")
        ]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return ""
    return "\n".join(turns)


def marked_diff(
    old: str, new: str, is_old_better: bool = False, is_new_better: bool = False
) -> tuple[str, str]:
    """Return both texts as escaped markup, with the words that only one of them has marked.

    The better side's words are marked as good, the other's as bad; without a better side, plainly.
    """
    is_known = is_old_better != is_new_better
    kinds = ["good" if better else "bad" for better in (is_old_better, is_new_better)]
    classes = [f' class="ek-{kind}"' if is_known else "" for kind in kinds]
    a, b = re.findall(r"\s+|\S+", old), re.findall(r"\s+|\S+", new)
    olds: list[str] = []
    news: list[str] = []
    for what, a0, a1, b0, b1 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        for parts, side, mark in ((a[a0:a1], olds, classes[0]), (b[b0:b1], news, classes[1])):
            text = escape("".join(parts))
            side.append(text if what == "equal" or not text else f"<mark{mark}>{text}</mark>")
    return "".join(olds), "".join(news)
