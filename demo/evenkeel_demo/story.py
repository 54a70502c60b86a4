"""The demo's script: two crowds of long prompts, the cache, an A/B run, a client's mistake."""

from __future__ import annotations

from dataclasses import dataclass

from evenkeel_demo.traffic import DemoPhase, Rates

DEFAULT_LENGTH_S = 200.0

# Each phase and the share of the demo's length at which it ends; then it stays popular.
PHASES = (
    (DemoPhase.HEALTHY, 0.15),
    (DemoPhase.CROWDED, 0.32),
    (DemoPhase.RECOVERED, 0.42),
    (DemoPhase.CONTROLLED, 0.59),
    (DemoPhase.POPULAR, 0.8),
    (DemoPhase.CUT, 1.0),
)
RATES = {
    DemoPhase.HEALTHY: Rates(per_s=6.0, popular_ratio=0.3),
    DemoPhase.CROWDED: Rates(per_s=6.0, crowd_every_s=0.5),
    DemoPhase.RECOVERED: Rates(per_s=3.0, popular_ratio=0.3),
    DemoPhase.CONTROLLED: Rates(per_s=6.0, crowd_every_s=0.5),
    DemoPhase.POPULAR: Rates(per_s=6.0, popular_ratio=0.7),
    DemoPhase.CUT: Rates(per_s=6.0, popular_ratio=0.3, max_tokens=12),
}
COMPARISON_FROM = 0.65


@dataclass(frozen=True, slots=True)
class Story:
    """The phases of a demo `length_s` long; after its end, questions stay popular."""

    length_s: float = DEFAULT_LENGTH_S

    def phase(self, elapsed_s: float) -> DemoPhase:
        """Return the phase at a time since the traffic started."""
        return next(
            (phase for phase, until in PHASES if elapsed_s < until * self.length_s),
            DemoPhase.POPULAR,
        )

    def rates(self, elapsed_s: float) -> Rates:
        """Return the arrivals at a time since the traffic started."""
        return RATES[self.phase(elapsed_s)]

    def is_comparing(self, elapsed_s: float) -> bool:
        """Return whether the A/B run should have started."""
        return elapsed_s >= COMPARISON_FROM * self.length_s
