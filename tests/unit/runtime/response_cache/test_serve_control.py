"""Near hits are served only on evidence, and no longer than it holds."""

import random

import pytest

from evenkeel_runtime.response_cache.serve_control import ServeControl
from evenkeel_runtime.response_cache.settings_file import RoutePolicy

POLICY = RoutePolicy(route="faq", similarities=(0.8, 0.9), wrong_hit_limit=0.05)


def feed(control: ServeControl, similarity: float, verdicts: list[bool]) -> list[str]:
    changes = [control.record(similarity, is_wrong) for is_wrong in verdicts]
    return [change.describe() for change in changes if change is not None]


def test_nothing_is_served_without_evidence() -> None:
    control = ServeControl(POLICY)
    assert control.threshold is None
    assert not control.may_serve(1.0)
    assert control.verdict_ratio == 1.0
    assert control.current.bound == 1.0


def test_right_verdicts_certify_and_only_a_share_is_checked_from_then_on() -> None:
    control = ServeControl(POLICY)
    changes = feed(control, 0.95, [False] * 200)
    assert len(changes) == 1
    assert changes[0].startswith("draft -> serve from 0.8: certified")
    assert control.may_serve(0.8) and not control.may_serve(0.79)
    assert control.verdict_ratio == POLICY.replay_ratio
    assert control.current.bound < POLICY.wrong_hit_limit


def test_wrong_verdicts_on_low_cosines_tighten_the_threshold() -> None:
    control = ServeControl(POLICY)
    feed(control, 0.95, [False] * 200)
    assert control.threshold == 0.8
    changes = feed(control, 0.82, [True] * 6)
    assert changes[-1].startswith("serve from 0.8 -> serve from 0.9: bound")
    assert not control.may_serve(0.85) and control.may_serve(0.9)


def test_a_rate_that_rises_ends_serving_and_starts_the_evidence_anew() -> None:
    control = ServeControl(RoutePolicy(route="faq", similarities=(0.9,), wrong_hit_limit=0.2))
    feed(control, 0.95, [False] * 3000)
    assert control.threshold == 0.9
    changes = feed(control, 0.95, [True] * 40)
    assert "risen" in changes[0]
    assert control.threshold is None
    # The old right verdicts no longer count.
    assert control.rungs[0].seen < 40


@pytest.mark.parametrize("rate", [0.05, 0.08, 0.2])
def test_a_rate_at_or_above_the_limit_is_hardly_ever_certified(rate: float) -> None:
    random_share = random.Random(5)
    num_certified = 0
    for _ in range(60):
        control = ServeControl(POLICY)
        for _ in range(250):
            control.record(0.95, random_share.random() < rate)
            if control.threshold is not None:
                num_certified += 1
                break
    # alpha 0.05, and three standard errors of 60 runs.
    assert num_certified / 60 <= 0.05 + 3 * (0.05 * 0.95 / 60) ** 0.5
