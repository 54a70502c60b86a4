"""A near hit is served only if the mode, its evidence, the wrong hits and its replay allow it."""

from pathlib import Path

import pytest

from evenkeel import spans
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.counts import CacheCounts
from evenkeel_runtime.response_cache.hit_class import KNOWN_WORDS, HitClass, NearHit
from evenkeel_runtime.response_cache.lookup import Lookup, describe_control, record_unused
from evenkeel_runtime.response_cache.memory_backend import MemoryBackend
from evenkeel_runtime.response_cache.metrics import CacheMetrics
from evenkeel_runtime.response_cache.near_hit_rule import find_status, may_serve
from evenkeel_runtime.response_cache.serve_control import Counted, ServeControl
from evenkeel_runtime.response_cache.settings_file import CachePolicy, HitMode, RoutePolicy
from tests.unit.runtime.response_cache.questions import entry, question

POLICY = RoutePolicy(route="faq", mode=HitMode.SERVE, wrong_hit_limit=0.05)
NEAR = NearHit(entry(question()), HitClass(KNOWN_WORDS, 0.9, 0.3), "slot")
LOWEST = (KNOWN_WORDS, 0.5, 0.0)


def make_control(seen: int = 400, wrong: int = 0) -> ServeControl:
    return ServeControl(POLICY, counted={LOWEST: Counted(seen, wrong)})


@pytest.mark.parametrize(
    ("mode", "seen", "num_pending", "has_room", "is_served"),
    [
        pytest.param(HitMode.SERVE, 400, 0, True, True, id="all allow it"),
        pytest.param(HitMode.DRAFT, 400, 0, True, False, id="another mode"),
        pytest.param(HitMode.SERVE, 30, 0, True, False, id="too little evidence"),
        pytest.param(HitMode.SERVE, 400, 2, True, False, id="too many replays under way"),
        pytest.param(HitMode.SERVE, 400, 0, False, False, id="no room for its replay"),
    ],
)
def test_a_near_hit_is_served_if_everything_allows_it(
    mode: HitMode, seen: int, num_pending: int, has_room: bool, is_served: bool
) -> None:
    control, ratios = make_control(seen), list[float]()
    control.wrong_hits.num_pending = num_pending
    policy = POLICY.model_copy(update={"mode": mode})

    def queue_replay(ratio: float) -> bool:
        ratios.append(ratio)
        return has_room

    assert may_serve(policy, control, NEAR, lambda: 0.0, queue_replay) is is_served
    assert control.wrong_hits.num_served == int(is_served)
    assert ratios == ([1.0] if is_served or not has_room else [])


@pytest.mark.parametrize(
    ("seen", "wrong", "status"), [(400, 0, "served"), (30, 1, "learning"), (30, 9, "verified")]
)
def test_a_class_has_a_status_by_its_evidence(seen: int, wrong: int, status: str) -> None:
    control = make_control(seen, wrong)
    said = describe_control(control, HitClass(KNOWN_WORDS, 0.6, 0.05))
    assert said[spans.CACHE_CLASS_STATUS] == status
    assert (said[spans.CACHE_ROUTE], said[spans.CACHE_KIND]) == ("faq", KNOWN_WORDS)
    assert (said[spans.CACHE_CLASS_SEEN], said[spans.CACHE_CLASS_WRONG]) == (seen, wrong)
    assert (said[spans.CACHE_CLASS_SIMILARITY], said[spans.CACHE_CLASS_LEAD]) == (0.5, 0.0)
    stricter = next(c for c in control.classes if c.key == (KNOWN_WORDS, 0.8, 0.2))
    if status == "served":
        assert find_status(control, stricter) == "served"


def test_recall_counts_what_was_not_compared_as_what_was() -> None:
    counts = CacheCounts()
    assert counts.recall_ratio is None
    counts.outcomes.update({"exact": 4, "semantic": 2, "verified": 2, "miss": 50})
    assert counts.recall_ratio == 1.0
    counts.unused["unjudged"] = 4
    assert counts.recall_ratio is None, "nothing is known of those"
    counts.unused.update({"same": 1, "different": 3})
    # A quarter of the 8 unused near hits had the right answer.
    assert counts.recall_ratio == pytest.approx(8 / 10)


def test_only_routes_that_may_use_a_hit_miss_one() -> None:
    counts, serving = CacheCounts(), question()
    observing = question(policy=CachePolicy(routes=(RoutePolicy(mode=HitMode.SHADOW),)))
    record_unused(counts, observing, Lookup(near=NEAR), {})
    record_unused(counts, serving, Lookup(), {})
    assert not counts.unused
    record_unused(counts, serving, Lookup(near=NEAR), {})
    record_unused(counts, serving, Lookup(near=NEAR), {spans.CACHE_VERDICT: "same"})
    assert counts.unused == {"unjudged": 1, "same": 1}


async def test_the_classes_are_in_the_metrics(tmp_path: Path) -> None:
    policy = CachePolicy(routes=(POLICY,))
    cache = ResponseCache(policy, MemoryBackend(1 << 20), None, AuditLog(None))
    for _ in range(30):
        cache.controls.record(POLICY, NEAR.hit_class, False, None)
    samples = [s for metric in CacheMetrics(cache).collect() for s in metric.samples]
    labels = {"route": "faq", "kind": KNOWN_WORDS, "cosine": "0.8", "lead": "0.2"}
    found = {s.name: s.value for s in samples if labels.items() <= s.labels.items()}
    assert found["evenkeel_cache_class_verdicts"] == 30
    assert found["evenkeel_cache_class_wrong_verdicts"] == 0
    assert 0.05 < found["evenkeel_cache_class_bound"] < 1
    statuses = {s.labels["status"] for s in samples if s.name == "evenkeel_cache_class_status"}
    assert statuses == {"learning"}
    await cache.close()
