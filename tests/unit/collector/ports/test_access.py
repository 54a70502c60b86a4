import base64
import hashlib
from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_collector.ports.access import (
    Access,
    AccessScope,
    ForbiddenError,
    TenantLimits,
    Token,
    UnauthenticatedError,
    read_access_file,
    secret_of,
)
from evenkeel_collector.ports.decompress import TooLargeError
from evenkeel_collector.ports.memory_budget import BusyError, MemoryBudget
from evenkeel_collector.ports.tenant_limits import BURST_S, RateLimitedError, TenantMeter
from tests.fixtures.manual_clock import ManualClock


def token(secret: str, *scopes: AccessScope, tenant: str | None = None) -> Token:
    digest = hashlib.sha256(secret.encode()).hexdigest()
    return Token(name=secret, sha256=digest, scopes=frozenset(scopes), tenant=tenant)


ACCESS = Access(
    [
        token("acme-secret", AccessScope.INGEST, tenant="acme"),
        token("reader", AccessScope.QUERY),
        token("root", AccessScope.ADMIN),
    ]
)


def test_a_token_proves_its_tenant_and_allows_its_scopes() -> None:
    assert ACCESS.check("acme-secret", AccessScope.INGEST) == "acme"
    assert ACCESS.check("root", AccessScope.INGEST) is None
    assert ACCESS.check("root", AccessScope.QUERY) is None
    with pytest.raises(ForbiddenError, match="'reader' does not allow ingest"):
        ACCESS.check("reader", AccessScope.INGEST)
    with pytest.raises(ForbiddenError):
        ACCESS.check("acme-secret", AccessScope.QUERY)


@pytest.mark.parametrize("secret", [None, "", "acme-secre", "acme-secret ", "\udcff"])
def test_anything_else_is_unknown(secret: str | None) -> None:
    with pytest.raises(UnauthenticatedError):
        ACCESS.check(secret, AccessScope.INGEST)


def test_without_tokens_everyone_may_do_everything() -> None:
    assert Access([]).check(None, AccessScope.QUERY) is None


@pytest.mark.parametrize(
    ("headers", "secret"),
    [
        ({"authorization": "Bearer abc"}, "abc"),
        ({"authorization": "bearer  abc"}, "abc"),
        ({"authorization": "Basic " + base64.b64encode(b"user:a:bc").decode()}, "a:bc"),
        ({"authorization": "Basic ???"}, None),
        ({"authorization": "Basic \xe9"}, None),
        ({"authorization": "Basic 4Q=="}, None),
        ({"x-clickhouse-key": "abc"}, "abc"),
        ({"authorization": "Digest abc"}, None),
        ({}, None),
    ],
)
def test_where_a_token_is_found(headers: dict[str, str], secret: str | None) -> None:
    assert secret_of(headers) == secret


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[token]]\nname = "a"\nsha256 = "12"\nscopes = ["ingest"]', "sha256"),
        (f'[[token]]\nname = "a"\nsha256 = "{"0" * 64}"\nscopes = []', "scopes"),
        (f'[[token]]\nname = "a"\nsha256 = "{"0" * 64}"\nscopes = ["all"]', "scopes"),
        (
            f'[[token]]\nname = "a"\nsha256 = "{"0" * 64}"\nscopes = ["admin"]\ntenant = "t"',
            "not administer",
        ),
        (
            f'[[token]]\nname = "a"\nsha256 = "{"0" * 64}"\nscopes = ["query"]\n' * 2,
            "two tokens are the same",
        ),
        ("[limits.acme]\nbytes = 3", "limits.acme.bytes"),
        ("[[token]", "is not TOML"),
    ],
)
def test_a_wrong_file_is_one_line_that_says_where(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "access.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        read_access_file(path)


def test_a_rate_is_kept_over_time_and_says_when_to_come_back() -> None:
    clock = ManualClock()
    meter = TenantMeter({"acme": TenantLimits(bytes_per_s=100)}, clock)
    accepted = 0
    for _ in range(600):
        try:
            meter.admit("acme", 50)
            accepted += 50
        except RateLimitedError as error:
            assert error.retry_after_s >= 1
        clock.now_s += 0.1
    assert accepted == pytest.approx(100 * (60 + BURST_S), rel=0.02)


def test_who_comes_back_when_told_is_let_in_even_with_more_than_the_rate() -> None:
    clock = ManualClock()
    meter = TenantMeter({"default": TenantLimits(bytes_per_s=10)}, clock)
    meter.admit(None, 1000)
    with pytest.raises(RateLimitedError) as raised:
        meter.admit(None, 1)
    clock.now_s += raised.value.retry_after_s
    meter.admit(None, 1)


def test_tenants_do_not_pay_for_each_other() -> None:
    meter = TenantMeter({"default": TenantLimits(requests_per_s=1)}, ManualClock())
    for tenant in ("a", "b", None):
        meter.admit(tenant, 10)
        meter.admit(tenant, 10)
        with pytest.raises(RateLimitedError, match=str(tenant or "unknown")):
            meter.admit(tenant, 10)


def test_a_tenant_with_limits_of_its_own_has_not_the_default() -> None:
    meter = TenantMeter(
        {"default": TenantLimits(request_bytes=1), "big": TenantLimits()}, ManualClock()
    )
    meter.admit("big", 100)
    with pytest.raises(TooLargeError):
        meter.admit("other", 100)


def test_the_memory_budget_refuses_what_does_not_fit_and_gives_back() -> None:
    budget = MemoryBudget(100)
    with budget.lease(60) as first:
        with pytest.raises(BusyError), budget.lease(50):
            pass
        first.resize(10)
        with budget.lease(50), pytest.raises(BusyError):
            first.resize(60)
    assert budget.num_bytes == 0
    with budget.lease(1000):
        assert budget.num_bytes == 1000
