"""Quotas of tenants and sessions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.control.config import ControlConfig, Quota
from evenkeel_runtime.control.quota import Quotas


def quotas(**fields: Any) -> Quotas:
    return Quotas(ControlConfig(**fields))


def test_a_tenant_without_a_quota_is_never_refused() -> None:
    accounts = quotas(tenants={"acme": Quota(requests_per_minute=1)})
    for _ in range(100):
        assert accounts.check("other", None, 0.0) is None
        assert accounts.begin("other", None, 0.0) == []


def test_requests_come_back_with_time() -> None:
    accounts = quotas(tenant=Quota(requests_per_minute=60))
    for _ in range(60):
        assert accounts.check("acme", None, 0.0) is None
        accounts.begin("acme", None, 0.0)
    refusal = accounts.check("acme", None, 0.0)
    assert refusal is not None
    assert refusal.owner == "tenant"
    assert refusal.wait_s == pytest.approx(1.0)
    assert accounts.check("other", None, 0.0) is None
    assert accounts.check("acme", None, 1.0) is None


def test_tokens_are_charged_at_the_end_and_owed() -> None:
    accounts = quotas(tenant=Quota(tokens_per_minute=600))
    held = accounts.begin("acme", None, 0.0)
    assert accounts.check("acme", None, 0.0) is None
    held[0].end(700)
    refusal = accounts.check("acme", None, 0.0)
    assert refusal is not None
    assert refusal.wait_s == pytest.approx(10.0)
    assert accounts.check("acme", None, 10.0) is None


def test_requests_in_flight_are_bounded() -> None:
    accounts = quotas(session=Quota(active=1))
    held = accounts.begin("acme", "one", 0.0)
    assert accounts.check("acme", "one", 0.0) is not None
    assert accounts.check("acme", "two", 0.0) is None
    assert accounts.check("other", "one", 0.0) is None
    held[0].end(0)
    assert accounts.check("acme", "one", 0.0) is None


def test_a_named_tenant_has_its_own_quota() -> None:
    accounts = quotas(
        tenant=Quota(requests_per_minute=1), tenants={"acme": Quota(requests_per_minute=2)}
    )
    for _ in range(2):
        assert accounts.check("acme", None, 0.0) is None
        accounts.begin("acme", None, 0.0)
    assert accounts.check("acme", None, 0.0) is not None


@given(
    per_minute=st.integers(1, 50),
    gaps=st.lists(st.floats(0, 20), min_size=1, max_size=200),
)
def test_no_minute_sees_more_than_twice_its_quota(per_minute: int, gaps: list[float]) -> None:
    """A full bucket and what fills it meanwhile: never more than that in any minute."""
    accounts = quotas(tenant=Quota(requests_per_minute=per_minute))
    now_s, admitted = 0.0, []
    for gap in gaps:
        now_s += gap
        if accounts.check("acme", None, now_s) is None:
            accounts.begin("acme", None, now_s)
            admitted.append(now_s)
    for start in admitted:
        in_minute = sum(start <= at < start + 60 for at in admitted)
        assert in_minute <= 2 * per_minute


def test_memory_is_bounded() -> None:
    accounts = quotas(session=Quota(requests_per_minute=1))
    for number in range(30_000):
        accounts.begin("acme", str(number), 0.0)
    # What was used longest ago is forgotten, and begins anew.
    assert accounts.check("acme", "0", 0.0) is None
    assert accounts.check("acme", "19999", 0.0) is None
    assert accounts.check("acme", "29999", 0.0) is not None
