"""Describes a control action in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evenkeel.control_levers import lever_change
from evenkeel_dashboard.draw import formats

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ControlAction:
    """A control action in words: the change, the reason, and the outcome."""

    lever: str
    before: str
    after: str
    reason: str
    burn: str
    effect: str
    level: str

    @property
    def change(self) -> str:
        """The values before and after."""
        return f"{self.before} → {self.after}" if self.before else self.after


def control(row: Row) -> ControlAction:
    """Return one control span as an action; its effect compares the burn rate before and after."""
    said: Mapping[str, str] = row["attributes"]
    name = "evenkeel.control."
    before, after = (_float(said.get(f"{name}burn_{when}")) for when in ("before", "after"))
    changed = lever_change(said)
    effect, level = "not measured", "unknown"
    if said.get(f"{name}lever") == "mode":
        # A person's switch: what the burn rate does next is not its effect.
        effect, level = "switched", "unknown"
    elif changed is not None and changed.is_dry_run:
        effect, level = "dry run", "unknown"
    elif before is not None and after is not None:
        if after < before:
            effect, level = "burn fell", "good"
        elif after <= 1:
            effect, level = "within budget", "good"
        else:
            effect, level = "burn did not fall", "warning"
    return ControlAction(
        lever=(changed and changed.lever) or said.get(f"{name}lever") or str(row["name"]),
        before=changed.before if changed else "",
        after=changed.after if changed else said.get(f"{name}change", "") or formats.NO_DATA,
        reason=said.get(f"{name}reason", ""),
        burn=f"{formats.number(before)} → {formats.number(after)}",
        effect=effect,
        level=level,
    )


def _float(text: str | None) -> float | None:
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) else None
