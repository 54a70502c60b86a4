"""The demo's script: two crowds of long prompts, the cache, an A/B run, a client's mistake."""

from __future__ import annotations

import math
from dataclasses import dataclass

from evenkeel_demo.traffic import ClientCounters, DemoPhase, Rates

DEFAULT_LENGTH_S = 200.0


@dataclass(frozen=True, slots=True)
class Act:
    """What happens in a part of the demo, and how long it lasts.

    Attributes:
        share: The part of the demo's length that it takes at least.
        num_chats: It goes on until that many of its chats have started to be answered: on a slow
            machine there would be nothing to see otherwise.
        control_acts: Whether control acts, and does not only observe. While a TTFT objective burns,
            it takes drafts away, so on a slow machine it would leave no cached answer to be
            verified in the acts after the crowds.
    """

    phase: DemoPhase
    rates: Rates
    share: float
    num_chats: int
    control_acts: bool = False


# Between the crowds, the page of the first one resolves: its windows are 20 s and 7.5 s long.
# Control acts from there to the second one's end: the runtime takes a second to follow its file.
ACTS = (
    Act(DemoPhase.HEALTHY, Rates(6.0, popular_ratio=0.3, has_long=False), 0.15, 10),
    Act(DemoPhase.CROWDED, Rates(6.0, crowd_every_s=0.5), 0.17, 10),
    Act(
        DemoPhase.RECOVERED,
        Rates(3.0, popular_ratio=0.3, has_long=False),
        0.15,
        10,
        control_acts=True,
    ),
    Act(DemoPhase.CONTROLLED, Rates(6.0, crowd_every_s=0.5), 0.17, 10, control_acts=True),
    Act(DemoPhase.POPULAR, Rates(6.0, popular_ratio=0.7), 0.18, 40),
    Act(DemoPhase.CUT, Rates(6.0, popular_ratio=0.3, max_tokens=12), 0.18, 20),
)
# What goes on after the last one.
ENCORE = 4
# An act ends after this many times its share, whatever has been seen.
LONGEST = 3.0
# Within this time the end of an act is noticed.
NOTICED_S = 0.6
# The A/B run starts once popular questions have been asked for this share of the length.
COMPARISON_AFTER = 0.06


class Story:
    """The acts of a demo that is `length_s` long on a machine that is not too slow for it.

    After the last one, popular questions are asked.
    """

    def __init__(self, length_s: float = DEFAULT_LENGTH_S) -> None:
        self._length_s = length_s
        self._began_s = [0.0]

    @property
    def is_over(self) -> bool:
        """Whether all acts have been played."""
        return len(self._began_s) > len(ACTS)

    @property
    def over_s(self) -> float:
        """How long after the start of the traffic the last act ended; infinite before that."""
        return self._began_s[-1] if self.is_over else math.inf

    @property
    def act(self) -> Act:
        """What happens now."""
        return ACTS[ENCORE if self.is_over else len(self._began_s) - 1]

    def advance(self, elapsed_s: float, counters: ClientCounters) -> None:
        """Go on to the next act if this one is over, at a time since the traffic started."""
        if self.is_over:
            return
        share_s = self.act.share * self._length_s
        lasted_s = elapsed_s - self._began_s[-1]
        num_chats = len(counters.ttft_s_by_phase.get(self.act.phase, ()))
        if lasted_s < share_s:
            return
        if num_chats >= self.act.num_chats or lasted_s >= LONGEST * share_s:
            # An act that was not prolonged ends in time, though this is noticed later.
            is_in_time = lasted_s < share_s + NOTICED_S
            self._began_s.append(self._began_s[-1] + share_s if is_in_time else elapsed_s)

    def is_comparing(self, elapsed_s: float) -> bool:
        """Return whether the A/B run should have started."""
        if len(self._began_s) <= ENCORE:
            return False
        return elapsed_s >= self._began_s[ENCORE] + COMPARISON_AFTER * self._length_s
