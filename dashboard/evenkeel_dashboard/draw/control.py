"""Describes a control action in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evenkeel_dashboard.draw import formats

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ControlAction:
    """A control action in words: the change, the reason, and the outcome."""

    lever: str
    change: str
    reason: str
    burn: str
    effect: str
    level: str


def control(row: Row) -> ControlAction:
    """Return one control span as an action; its effect compares the burn rate before and after."""
    said: Mapping[str, str] = row["attributes"]
    name = "evenkeel.control."
    before, after = (_float(said.get(f"{name}burn_{when}")) for when in ("before", "after"))
    change = said.get(f"{name}change", "")
    if f"{name}after" in said:
        change = f"{said.get(f'{name}before', '?')} → {said[f'{name}after']}"
    effect, level = "not measured", "unknown"
    if said.get(f"{name}is_dry_run", "").lower() == "true":
        effect, level = "dry run", "unknown"
    elif before is not None and after is not None:
        if after < before:
            effect, level = "burn fell", "good"
        elif after <= 1:
            effect, level = "within budget", "good"
        else:
            effect, level = "burn did not fall", "warning"
    return ControlAction(
        lever=said.get(f"{name}lever", str(row["name"])),
        change=change or formats.NO_DATA,
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
