"""The acts of the demo."""

import math
from collections.abc import Iterable

import pytest

from evenkeel_demo.story import ACTS, LONGEST, Story
from evenkeel_demo.traffic import ClientCounters, DemoPhase

MANY = 1000


def _played(story: Story, num_chats: int, until_s: float) -> dict[float, DemoPhase]:
    """The phase at each second of a demo in whose every act so many chats were answered."""
    counters = ClientCounters(ttft_s_by_phase={act.phase: [0.1] * num_chats for act in ACTS})
    return dict(_phases(story, counters, until_s))


def _phases(
    story: Story, counters: ClientCounters, until_s: float
) -> Iterable[tuple[float, DemoPhase]]:
    for elapsed_s in range(int(until_s) + 1):
        story.advance(elapsed_s, counters)
        yield elapsed_s, story.act.phase


@pytest.mark.parametrize(
    ("elapsed_s", "phase"),
    [
        (0, DemoPhase.HEALTHY),
        (14, DemoPhase.HEALTHY),
        (15, DemoPhase.CROWDED),
        (32, DemoPhase.RECOVERED),
        (47, DemoPhase.CONTROLLED),
        (64, DemoPhase.POPULAR),
        (82, DemoPhase.CUT),
        (100, DemoPhase.POPULAR),
        (1000, DemoPhase.POPULAR),
    ],
)
def test_phases_of_a_machine_that_answers_many(elapsed_s: int, phase: DemoPhase) -> None:
    assert _played(Story(length_s=100), MANY, 1000)[elapsed_s] is phase


def test_control_acts_against_the_second_crowd_and_takes_no_drafts_from_the_cache() -> None:
    assert {act.phase for act in ACTS if act.control_acts} == {
        DemoPhase.RECOVERED,
        DemoPhase.CONTROLLED,
    }
    assert not Story().act.control_acts


def test_an_act_goes_on_until_enough_chats_were_answered() -> None:
    story, counters = Story(length_s=100), ClientCounters()
    counters.ttft_s_by_phase[DemoPhase.HEALTHY] = [0.1] * (ACTS[0].num_chats - 1)
    story.advance(20, counters)
    assert story.act.phase is DemoPhase.HEALTHY
    counters.ttft_s_by_phase[DemoPhase.HEALTHY].append(0.1)
    story.advance(21, counters)
    assert story.act.phase is DemoPhase.CROWDED
    # The next one begins now, and takes its whole share.
    counters.ttft_s_by_phase[DemoPhase.CROWDED] = [0.1] * MANY
    story.advance(37, counters)
    assert story.act.phase is DemoPhase.CROWDED
    story.advance(38, counters)
    assert story.act.phase is DemoPhase.RECOVERED


def test_an_act_ends_even_if_no_chat_was_answered() -> None:
    story = Story(length_s=100)
    phases = _played(story, 0, LONGEST * 100)
    assert phases[44] is DemoPhase.HEALTHY
    assert phases[45] is DemoPhase.CROWDED
    assert story.is_over


def test_the_two_crowds_are_alike() -> None:
    watching, acting = (act for act in ACTS if act.rates.crowd_every_s is not None)
    assert (watching.phase, acting.phase) == (DemoPhase.CROWDED, DemoPhase.CONTROLLED)
    assert (watching.rates, watching.share) == (acting.rates, acting.share)


def test_outside_the_crowds_nothing_is_late_until_their_pages_are_over() -> None:
    assert {act.phase for act in ACTS if not act.rates.has_long} == {
        DemoPhase.HEALTHY,
        DemoPhase.RECOVERED,
    }


def test_the_shares_make_a_whole() -> None:
    assert sum(act.share for act in ACTS) == pytest.approx(1)


def test_the_comparison_begins_after_the_crowds() -> None:
    story = Story(length_s=100)
    _played(story, MANY, 65)
    assert not story.is_comparing(69)
    assert story.is_comparing(70)
    assert story.over_s == math.inf
    _played(story, MANY, 100)
    assert story.over_s == 100
    assert story.is_comparing(100)
