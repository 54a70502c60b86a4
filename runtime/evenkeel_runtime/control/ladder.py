"""The control ladder: one step up while a budget burns, one step back once it recovers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from evenkeel_runtime.control.config import ControlConfig


class Lever(StrEnum):
    """The setting that a step changes."""

    PREFILL = "prefill_chunk"
    DRAFTS = "draft_tokens"


@dataclass(frozen=True, slots=True)
class LeverLimits:
    """The limits in force; a ratio of 1 is vLLM's own setting.

    Attributes:
        prefill_ratio: Share of vLLM's tokens per step that one prompt may take.
        draft_ratio: Share of the configured draft length that is used.
    """

    prefill_ratio: float = 1.0
    draft_ratio: float = 1.0

    def describe(self, lever: Lever) -> str:
        """Return the value of one lever as text."""
        return f"{self.prefill_ratio if lever is Lever.PREFILL else self.draft_ratio:g}"


# Neither lever idles the engine; admission is up to the gate.
STEPS = (
    (Lever.PREFILL, LeverLimits(prefill_ratio=0.25)),
    (Lever.DRAFTS, LeverLimits(prefill_ratio=0.25, draft_ratio=0.0)),
)


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """One class over the last window.

    Attributes:
        num_good: First tokens within the limit.
        num_bad: First tokens over the limit, requests over it without one yet, and requests refused
            while waiting.
    """

    num_good: int = 0
    num_bad: int = 0


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A step taken, up or back.

    Attributes:
        level: Steps in force after it.
        lever: The lever it changes.
        before: The lever's value before.
        after: Its value after.
        reason: Why, in one line.
        burn: The burn rate that triggered it.
    """

    level: int
    lever: str
    before: str
    after: str
    reason: str
    burn: float


class Ladder:
    """Takes steps up while a class burns its budget; pure, with times passed in.

    Args:
        config: Burn rates, window and classes.
        now_s: The start time.
    """

    def __init__(self, config: ControlConfig, now_s: float) -> None:
        self._config = config
        self._level = 0
        self._moved_s = now_s - config.window_s
        self._burning_s = now_s

    def configure(self, config: ControlConfig, now_s: float) -> None:
        """Apply a new configuration; a change of mode reverts all steps."""
        if config.mode is not self._config.mode and self._level:
            self._level = 0
            self._moved_s = now_s - config.window_s
        self._config = config

    @property
    def level(self) -> int:
        """Steps in force."""
        return self._level

    @property
    def limits(self) -> LeverLimits:
        """The limits in force."""
        return STEPS[self._level - 1][1] if self._level else LeverLimits()

    def tick(self, counts: Mapping[str, ClassCounts], now_s: float) -> LimitChange | None:
        """Take at most one step; return it.

        The burn rate of a class is (bad / all) / (1 - target); 1 spends exactly the budget. The
        highest one counts.
        """
        config = self._config
        name, burn, num_bad = self._worst(counts)
        if burn >= config.recover_burn:
            self._burning_s = now_s
        has_settled = now_s - self._moved_s >= config.window_s
        if burn >= config.escalate_burn and num_bad >= config.min_bad:
            if has_settled and self._level < len(STEPS):
                limit = config.classes[name].ttft_s
                reason = (
                    f"{name}: {num_bad} of its requests over {limit:g} s in {config.window_s:g} s, "
                    f"burn {burn:.1f}"
                )
                return self._move(+1, reason, burn, now_s)
        elif self._level and has_settled and now_s - self._burning_s >= config.recover_s:
            reason = f"burn under {config.recover_burn:g} for {config.recover_s:g} s"
            self._burning_s = now_s
            return self._move(-1, reason, burn, now_s)
        return None

    def burn(self, counts: Mapping[str, ClassCounts]) -> float:
        """Return the highest burn rate over all classes."""
        return self._worst(counts)[1]

    def _worst(self, counts: Mapping[str, ClassCounts]) -> tuple[str, float, int]:
        worst = ("", 0.0, 0)
        for name, count in counts.items():
            total = count.num_good + count.num_bad
            if not total:
                continue
            burn = count.num_bad / total / (1 - self._config.classes[name].target)
            worst = max(worst, (name, burn, count.num_bad), key=lambda entry: entry[1])
        return worst

    def _move(self, direction: int, reason: str, burn: float, now_s: float) -> LimitChange:
        lever = STEPS[self._level if direction > 0 else self._level - 1][0]
        before = self.limits.describe(lever)
        self._level += direction
        self._moved_s = now_s
        return LimitChange(self._level, lever, before, self.limits.describe(lever), reason, burn)
