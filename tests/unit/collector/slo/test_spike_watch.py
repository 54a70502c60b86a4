from evenkeel_collector.slo.spike_watch import chosen_cohorts

BY = ("model", "tenant", "route")


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
