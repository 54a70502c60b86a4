"""The phases of the demo."""

import pytest

from evenkeel_demo.story import Story
from evenkeel_demo.traffic import DemoPhase


@pytest.mark.parametrize(
    ("elapsed_s", "phase"),
    [
        (0, DemoPhase.HEALTHY),
        (24.9, DemoPhase.HEALTHY),
        (25, DemoPhase.DISTURBED),
        (50, DemoPhase.RECOVERED),
        (1000, DemoPhase.RECOVERED),
    ],
)
def test_phases(elapsed_s: float, phase: DemoPhase) -> None:
    assert Story(length_s=100).phase(elapsed_s) is phase


def test_only_the_disturbed_phase_has_a_crowd() -> None:
    story = Story(length_s=100)
    crowds = [story.rates(t).crowd_every_s is not None for t in range(0, 100, 5)]
    assert crowds == [25 <= t < 50 for t in range(0, 100, 5)]


def test_the_comparison_begins_after_the_recovery() -> None:
    story = Story(length_s=100)
    assert not story.is_comparing(50)
    assert story.is_comparing(60)
