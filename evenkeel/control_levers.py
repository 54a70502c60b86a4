"""Plain words for what control changed, for pages and alerts (docs/guide/control.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from evenkeel.spans import CONTROL_AFTER, CONTROL_BEFORE, CONTROL_IS_DRY_RUN, CONTROL_LEVER

# The values of these are shares of vLLM's own setting.
_SHARES = MappingProxyType(
    {"prefill_chunk": "prompt tokens per step", "draft_tokens": "draft length"}
)


@dataclass(frozen=True, slots=True)
class LeverChange:
    """What control changed, or in a dry run would have changed.

    Attributes:
        lever: The setting, in words; "" if the span names none.
        before: Its value before, such as "100%".
        after: Its value after.
        is_dry_run: Whether it was only computed, so that nothing changed.
    """

    lever: str
    before: str
    after: str
    is_dry_run: bool


def lever_change(attributes: Mapping[str, str]) -> LeverChange | None:
    """Return the change that a span `evenkeel.control` recorded; None if it recorded none."""
    lever, after = attributes.get(CONTROL_LEVER, ""), attributes.get(CONTROL_AFTER, "")
    if not after:
        return None
    before = attributes.get(CONTROL_BEFORE, "") or "?"
    if lever in _SHARES:
        before, after = _percent(before), _percent(after)
    is_dry_run = attributes.get(CONTROL_IS_DRY_RUN, "").lower() == "true"
    return LeverChange(_SHARES.get(lever, lever), before, after, is_dry_run)


def _percent(share: str) -> str:
    try:
        return f"{float(share) * 100:.3g}%"
    except ValueError:
        return share
