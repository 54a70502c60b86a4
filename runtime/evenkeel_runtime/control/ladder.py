"""The ladder of control: one step further while a budget burns, one step back once it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from evenkeel_runtime.control.config import ControlConfig


class Lever(StrEnum):
    """What a step moves."""

    PREFILL = "prefill_chunk"
    DRAFTS = "draft_tokens"


@dataclass(frozen=True, slots=True)
class LeverLimits:
    """What is in force; a ratio of 1 is vLLM's own setting.

    Attributes:
        prefill_ratio: Share of vLLM's tokens a step that one prompt may take.
        draft_ratio: Share of the configured draft length that is used.
    """

    prefill_ratio: float = 1.0
    draft_ratio: float = 1.0

    def describe(self, lever: Lever) -> str:
        """Return the value of one lever as text."""
        return f"{self.prefill_ratio if lever is Lever.PREFILL else self.draft_ratio:g}"


# Neither keeps the engine from work: who is let in, and when, is the gate's to say.
STEPS = (
    (Lever.PREFILL, LeverLimits(prefill_ratio=0.25)),
    (Lever.DRAFTS, LeverLimits(prefill_ratio=0.25, draft_ratio=0.0)),
)


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """One class over the last window.

    Attributes:
        num_good: First tokens within the limit.
        num_bad: First tokens later than that, requests already later without one, and requests
            refused while waiting.
    """

    num_good: int = 0
    num_bad: int = 0


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A step that was taken, up or back.

    Attributes:
        level: Steps in force after it.
        lever: What it moves.
        before: The lever's value before.
        after: Its value after.
        reason: Why, in one line.
        burn: The burn rate that it answers.
    """

    level: int
    lever: str
    before: str
    after: str
    reason: str
    burn: float


class Ladder:
    """Climbs while a class burns its budget; pure, times are passed in.

    Args:
        config: Burn rates, window and classes.
        now_s: The time it starts from.
    """

    def __init__(self, config: ControlConfig, now_s: float) -> None:
        self._config = config
        self._level = 0
        self._moved_s = now_s - config.window_s
        self._burning_s = now_s

    def configure(self, config: ControlConfig, now_s: float) -> None:
        """Put another configuration in force; a mode that changes takes all steps back."""
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
        """What is in force."""
        return STEPS[self._level - 1][1] if self._level else LeverLimits()

    def tick(self, counts: Mapping[str, ClassCounts], now_s: float) -> LimitChange | None:
        """Take at most one step; returns it.

        Burn rate of a class: (bad / all) / (1 - target); 1 spends exactly the budget. The highest
        of the classes counts.
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
        """Return the highest burn rate of the classes."""
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
