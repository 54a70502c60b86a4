import uuid
from collections.abc import Iterator

import httpx
import pytest

from tests.fixtures.redis_process import RedisProcess, run_redis
from tests.fixtures.served_model import ServedModel


@pytest.fixture
def tenant() -> str:
    """A tenant of one test, by which it finds its own spans."""
    return f"tenant-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(served_model: ServedModel, tenant: str) -> Iterator[httpx.Client]:
    """A client of the served model, with the test's tenant."""
    headers = {"x-evenkeel-tenant": tenant}
    with httpx.Client(base_url=served_model.url, headers=headers, timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisProcess]:
    with run_redis() as running:
        yield running
