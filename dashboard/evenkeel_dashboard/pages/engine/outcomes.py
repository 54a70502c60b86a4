"""What measured step times and speed-ups mean, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel.spans import CONTROL_AFTER, CONTROL_LEVER
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.request_rows import short_id

Row = Mapping[str, Any]

STRAGGLER_FACTOR = 4
"""As in engine_step_spread.sql."""
_NOTABLE_RATIO = 1.1
# Of fewer requests, the 95th percentile is one of the slowest two.
_LEAST_TIMED = 40
# More refused by this share of requests: the others are not faster for nothing.
_NOTABLE_SHED = 0.02
# An engine this much slower than the others at the same work stands out.
_SLOW_FACTOR = 1.25


def against_others(rows: Sequence[Row]) -> list[str]:
    """Return for each engine how it compares with the others at the same work; – for a single one.

    `against_usual` of a row is its step time over the median of all engines for the same batch.
    """
    found = []
    for row in rows:
        others = [float(other["against_usual"]) for other in rows if other is not row]
        if not others or not sum(others):
            found.append("–")
            continue
        ratio = float(row["against_usual"]) / (sum(others) / len(others))
        found.append(
            f"slower by {formats.percent(ratio - 1)}" if ratio >= _SLOW_FACTOR else "as the others"
        )
    return found


def gain_words(gain: Row) -> str:
    """Return what a measured speed-up means: it pays, it costs, or neither is shown yet."""
    if gain["lower"] > 1:
        return "pays"
    return "costs" if gain["upper"] < 1 else "no difference shown yet"


def steps_words(gain: Row, *, of_several: bool) -> str:
    """Return of which steps a speed-up is, and of which server if there are several."""
    steps = "all" if gain["batch"] == "all" else f"batch of {gain['batch']}"
    return f"{gain['service']}, {short_id(gain['instance'])}: {steps}" if of_several else steps


def find_acting(actions: Sequence[Row]) -> tuple[int, int | None] | None:
    """Return when control last began to act, and when that ended; None if it did not.

    Args:
        actions: What control did, the last action first.

    Returns:
        Both in Unix milliseconds; the end is None if it still acts.
    """
    until_ms = None
    for action in actions:
        said = action["attributes"]
        if said.get(CONTROL_LEVER) != "mode":
            continue
        if said.get(CONTROL_AFTER) == "act":
            return int(action["time_ms"]), until_ms
        until_ms = int(action["time_ms"])
    return None


@dataclass(frozen=True, slots=True)
class SideBySide:
    """One SLO class while control watched and while it acted; rows of `control_effect`."""

    slo_class: str
    watching: Row
    acting: Row

    @property
    def words(self) -> str:
        """How p95 changed, in words."""
        before, after = self.watching["p95_s"], self.acting["p95_s"]
        if not before or not after:
            return "–"
        if min(self.watching["num_timed"], self.acting["num_timed"]) < _LEAST_TIMED:
            return "too few requests"
        is_faster, ratio = after < before, max(before, after) / min(before, after)
        if ratio < _NOTABLE_RATIO:
            return "about the same"
        return f"{formats.factor(ratio)} {'faster' if is_faster else 'slower'}"

    @property
    def level(self) -> str:
        """Good if it became faster without refusing more, warning if slower."""
        sheds_more = _shed(self.acting) > _shed(self.watching) + _NOTABLE_SHED
        levels = {"faster": "" if sheds_more else "good", "slower": "warning"}
        return levels.get(self.words.rpartition(" ")[2], "")


def num_words(row: Row) -> str:
    """Return a side's number of requests, and the share of them that control refused."""
    shed = f", {formats.percent(_shed(row))} shed" if row["num_shed"] else ""
    return f"{formats.count(row['num_requests'])}{shed}"


def _shed(row: Row) -> float:
    return float(row["num_shed"]) / row["num_requests"] if row["num_requests"] else 0.0


def side_by_side(rows: Sequence[Row]) -> list[SideBySide]:
    """Return the classes that had requests on both sides."""
    by_class: dict[str, dict[bool, Row]] = {}
    for row in rows:
        by_class.setdefault(row["slo_class_name"], {})[bool(row["is_acting"])] = row
    return [
        SideBySide(name, sides[False], sides[True])
        for name, sides in by_class.items()
        if len(sides) == 2
    ]
