"""What the demo shows and when: a healthy phase, a disturbed one, the recovery, an A/B run."""

from __future__ import annotations

from dataclasses import dataclass

from evenkeel_demo.traffic import DemoPhase, Rates

DEFAULT_LENGTH_S = 120.0

HEALTHY = Rates(per_s=6.0)
DISTURBED = Rates(per_s=6.0, crowd_every_s=0.5)
RECOVERED = Rates(per_s=3.0)


@dataclass(frozen=True, slots=True)
class Story:
    """The phases of a demo that is `length_s` long; after its end the last phase goes on."""

    length_s: float = DEFAULT_LENGTH_S

    def phase(self, elapsed_s: float) -> DemoPhase:
        """Return the phase at a time since the traffic began."""
        if elapsed_s < 0.25 * self.length_s:
            return DemoPhase.HEALTHY
        if elapsed_s < 0.50 * self.length_s:
            return DemoPhase.DISTURBED
        return DemoPhase.RECOVERED

    def rates(self, elapsed_s: float) -> Rates:
        """Return the arrivals at a time since the traffic began."""
        return {
            DemoPhase.HEALTHY: HEALTHY,
            DemoPhase.DISTURBED: DISTURBED,
            DemoPhase.RECOVERED: RECOVERED,
        }[self.phase(elapsed_s)]

    def is_comparing(self, elapsed_s: float) -> bool:
        """Whether the A/B run should have begun."""
        return elapsed_s >= 0.60 * self.length_s
