from typing import Any

from evenkeel.errors import StoreError
from evenkeel.slo.file.anomalies import default_anomalies
from evenkeel_collector.slo.spike_watch import EVERY_NS, SpikeWatch, chosen_cohorts

BY = ("model", "tenant", "route")
S = 10**9
NOW = 1_795_168_800 * S


class Store:
    """A store without requests, which may be down."""

    is_down = True

    def spike_windows(self, parameters: object) -> list[dict[str, Any]]:
        if self.is_down:
            raise StoreError("too many parts")
        return []


def test_rules_fail_until_they_have_been_judged_again() -> None:
    """They are judged every half minute, and cycles in between took the failure for over."""
    store: Any = Store()
    errors: list[Exception] = []
    rules = default_anomalies()
    watch = SpikeWatch(store, errors.append)
    watch.conditions(rules, {}, NOW)
    assert watch.failures["input-tokens"] == "too many parts"
    failed = dict(watch.failures)
    store.is_down = False
    watch.conditions(rules, {}, NOW + 5 * S)
    assert watch.failures == failed
    watch.conditions(rules, {}, NOW + EVERY_NS)
    assert watch.failures == {}


def test_many_routes_of_one_tenant_do_not_displace_the_others() -> None:
    many = [("m", "busy", f"r{number}") for number in range(300)]
    few = [("m", "quiet", "r0"), ("m", "other", "r0"), ("m", "other", "r1")]
    chosen = chosen_cohorts([*many, *few], BY, (), many, 200)
    assert set(few) < set(chosen)
    assert len(chosen) == 200
    assert [c for c in chosen if c[1] == "busy"] == many[:197]


def test_cohorts_with_an_alert_come_first_then_those_with_a_known_past() -> None:
    cohorts = [("m", "a", str(number)) for number in range(5)]
    chosen = chosen_cohorts(cohorts, BY, {cohorts[4]}, {cohorts[2], cohorts[4]}, 3)
    assert chosen == [cohorts[4], cohorts[2], cohorts[0]]


def test_without_tenants_the_busiest_are_judged() -> None:
    cohorts = [("m1",), ("m2",), ("m3",)]
    assert chosen_cohorts(cohorts, ("model",), (), (), 2) == cohorts[:2]
