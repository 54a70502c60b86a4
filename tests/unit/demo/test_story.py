"""The phases of the demo."""

import pytest

from evenkeel_demo.story import Story
from evenkeel_demo.traffic import DemoPhase


@pytest.mark.parametrize(
    ("elapsed_s", "phase"),
    [
        (0, DemoPhase.HEALTHY),
        (14.9, DemoPhase.HEALTHY),
        (15, DemoPhase.CROWDED),
        (32, DemoPhase.RECOVERED),
        (42, DemoPhase.CONTROLLED),
        (59, DemoPhase.POPULAR),
        (80, DemoPhase.CUT),
        (100, DemoPhase.POPULAR),
        (1000, DemoPhase.POPULAR),
    ],
)
def test_phases(elapsed_s: float, phase: DemoPhase) -> None:
    assert Story(length_s=100).phase(elapsed_s) is phase


def test_the_two_crowds_are_alike() -> None:
    story = Story(length_s=100)
    crowds = [t for t in range(100) if story.rates(t).crowd_every_s is not None]
    assert crowds == [*range(15, 32), *range(42, 59)]
    assert story.rates(20) == story.rates(50)


def test_the_comparison_begins_after_the_crowds() -> None:
    story = Story(length_s=100)
    assert not story.is_comparing(60)
    assert story.is_comparing(65)
