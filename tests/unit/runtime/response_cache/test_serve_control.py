"""Near hits are served only on the evidence of their class, and no longer than it holds."""

import random

import pytest

from evenkeel_runtime.response_cache.confidence_sequence import upper_bound
from evenkeel_runtime.response_cache.hit_class import KINDS, KNOWN_WORDS, SAME_WORDS, HitClass
from evenkeel_runtime.response_cache.serve_control import Counted, ServeControl
from evenkeel_runtime.response_cache.settings_file import RoutePolicy

POLICY = RoutePolicy(
    route="faq",
    similarities=(0.6, 0.8),
    leads=(0.0, 0.2),
    draft_similarity=0.5,
    wrong_hit_limit=0.05,
)


def hit(similarity: float = 0.9, lead: float = 0.3, kind: str = KNOWN_WORDS) -> HitClass:
    return HitClass(kind, similarity, lead)


def feed(control: ServeControl, near: HitClass, verdicts: list[bool]) -> list[str]:
    changes = [control.record(near, is_wrong) for is_wrong in verdicts]
    return [change.describe() for change in changes if change is not None]


def test_nothing_is_served_without_evidence() -> None:
    control = ServeControl(POLICY)
    assert control.threshold is None and not control.served
    assert not control.may_serve(hit(1.0, 1.0))
    assert control.verdict_ratio(KNOWN_WORDS) == 1.0
    assert control.current.bound == 1.0


def test_right_verdicts_certify_their_class() -> None:
    control = ServeControl(POLICY)
    changes = feed(control, hit(), [False] * 300)
    assert len(changes) == 1
    assert changes[0].startswith("known_words: draft -> serve from cosine 0.6, lead 0: certified")
    assert control.may_serve(hit(0.6, 0.0)) and not control.may_serve(hit(0.59, 0.3))
    assert control.current.bound < POLICY.wrong_hit_limit


@pytest.mark.parametrize("kind", KINDS)
def test_a_pair_that_a_guard_objects_to_earns_trust_as_any_other(kind: str) -> None:
    control = ServeControl(POLICY)
    feed(control, hit(kind=kind), [False] * 400)
    assert control.may_serve(hit(kind=kind))
    assert not any(control.may_serve(hit(kind=other)) for other in KINDS if other != kind)


def test_wrong_verdicts_of_little_lead_tighten_what_is_served() -> None:
    control = ServeControl(POLICY)
    feed(control, hit(0.9, 0.3), [False] * 300)
    changes = feed(control, hit(0.7, 0.1), [True, *[False] * 12] * 6)
    assert changes[-1].startswith("known_words: serve from cosine 0.6, lead 0 -> serve from")
    assert ": bound, " in changes[-1]
    assert not control.may_serve(hit(0.7, 0.1)) and control.may_serve(hit(0.9, 0.3))


def test_alpha_is_divided_among_all_classes() -> None:
    control = ServeControl(POLICY)
    # The same words need no cosine and no lead.
    assert [item.key for item in control.evidence[SAME_WORDS]] == [(SAME_WORDS, 0.6, 0.0)]
    assert len(control.classes) == (len(KINDS) - 1) * 4 + 1
    assert sum(item.alpha for item in control.classes) == pytest.approx(0.8 * POLICY.alpha)
    feed(control, hit(), [False] * 10)
    first = control.evidence[KNOWN_WORDS][0]
    assert first.bound == upper_bound(0, 10, first.alpha)


def test_a_rate_that_rises_ends_serving_and_starts_the_evidence_anew() -> None:
    policy = POLICY.model_copy(update={"wrong_hit_limit": 0.2})
    control = ServeControl(policy)
    feed(control, hit(), [False] * 3000)
    feed(control, hit(kind="names"), [False] * 500)
    changes = feed(control, hit(), [True] * 40)
    assert "risen" in changes[0]
    assert not control.may_serve(hit()) and control.may_serve(hit(kind="names"))
    # The old right verdicts no longer count.
    assert control.evidence[KNOWN_WORDS][0].seen < 40


def test_more_wrong_hits_than_the_limit_allows_end_serving() -> None:
    control = ServeControl(POLICY)
    feed(control, hit(), [False] * 300)
    for _ in range(60):
        control.wrong_hits.record_served()
    # Kinds take turns, so that none of them has a rate that has risen.
    kinds = [kind for kind in KINDS if kind != KNOWN_WORDS][:5]
    for kind in kinds:
        feed(control, hit(kind=kind), [False] * 400)
    changes = [control.record(hit(kind=kind), True, replayed_at=1.0) for kind in kinds]
    reasons = [change.reason for change in changes if change is not None]
    assert reasons == ["spent"]
    # All kinds that were wrong, and no other.
    assert control.may_serve(hit()) and not control.may_serve(hit(kind=kinds[0]))
    assert control.wrong_hits.num_served == 0


def test_labelled_and_earlier_verdicts_count_from_the_start() -> None:
    label = {(KNOWN_WORDS, s, lead): Counted(250, 0) for s in (0.6, 0.8) for lead in (0.0, 0.2)}
    control = ServeControl(POLICY, label)
    # Labels alone do not serve: traffic may be of another kind.
    assert not control.may_serve(hit())
    control = ServeControl(POLICY, label, label)
    assert control.may_serve(hit())
    assert control.evidence[KNOWN_WORDS][0].seen == 500
    assert control.evidence[KNOWN_WORDS][0].labelled == 250
    # None of the served hits has been replayed, so each one is.
    assert control.verdict_ratio(KNOWN_WORDS) == 1.0


@pytest.mark.parametrize("rate", [0.05, 0.08, 0.2])
def test_a_rate_at_or_above_the_limit_is_hardly_ever_certified(rate: float) -> None:
    random_share = random.Random(5)
    num_certified = 0
    for _ in range(60):
        control = ServeControl(POLICY)
        for _ in range(300):
            control.record(hit(), random_share.random() < rate)
            if control.threshold is not None:
                num_certified += 1
                break
    # alpha 0.05, and three standard errors of 60 runs.
    assert num_certified / 60 <= 0.05 + 3 * (0.05 * 0.95 / 60) ** 0.5


@pytest.mark.parametrize("begins_labelled", [False, True])
@pytest.mark.parametrize("fooled_rate", [0.002, 0.1, 0.5])
def test_served_hits_stay_within_the_limit_in_100_of_100_runs(
    begins_labelled: bool, fooled_rate: float
) -> None:
    """Half-way through, traffic turns: near misses of a trusted class are answered wrongly."""
    policy = RoutePolicy(similarities=(0.6,), leads=(0.1,))
    label = {(SAME_WORDS, 0.6, 0.1): Counted(800, 1)} if begins_labelled else {}
    within, num_serving = 0, 0
    near = hit(kind=SAME_WORDS)
    for seed in range(100):
        order = random.Random(seed)
        control = ServeControl(policy, label)
        num_served = num_wrong = 0
        for number in range(3000):
            is_wrong = order.random() < (fooled_rate if number >= 1500 else 0.002)
            if not control.may_serve(near):
                if order.random() < control.verdict_ratio(SAME_WORDS):
                    control.record(near, is_wrong)
                continue
            ratio = control.wrong_hits.replay_ratio
            control.wrong_hits.record_served()
            num_served += 1
            num_wrong += is_wrong
            if order.random() < ratio:
                control.record(near, is_wrong, replayed_at=ratio)
        within += num_wrong <= policy.wrong_hit_limit * num_served
        num_serving += num_served > 0
    assert (within, num_serving >= 60) == (100, True)
