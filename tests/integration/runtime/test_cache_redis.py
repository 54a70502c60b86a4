"""What only a real Redis does: exact eviction, and going away while in use."""

import logging
from collections.abc import AsyncIterator

import pytest

from evenkeel.embedding import load_encoder
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.backend import BackendError
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.redis_backend import RedisBackend
from tests.fixtures.redis_process import RedisProcess, run_redis
from tests.unit.runtime.response_cache.questions import SERVING, entry, question

TIMEOUT_S = 10.0


@pytest.fixture
async def backend(
    redis: RedisProcess, request: pytest.FixtureRequest
) -> AsyncIterator[RedisBackend]:
    opened = RedisBackend(redis.url, f"test:{request.node.name}", 4000, TIMEOUT_S)
    yield opened
    await opened.close()


def open_cache(redis: RedisProcess, prefix: str) -> ResponseCache:
    shared = RedisBackend(redis.url, prefix, 1 << 20, TIMEOUT_S)
    return ResponseCache(SERVING, shared, load_encoder(), AuditLog(None))


async def test_the_least_recently_read_go_first(backend: RedisBackend) -> None:
    for name in "abc":
        assert await backend.write(name, name.encode() * 1000, 60, ["t"]) == []
    assert await backend.read(["a", "x"]) == [b"a" * 1000, None]
    assert list(await backend.write("d", b"d" * 2000, 60, ["t"])) == ["b"]
    assert await backend.read(["a", "b", "c", "d"]) == [
        b"a" * 1000, None, b"c" * 1000, b"d" * 2000,
    ]  # fmt: skip
    size = await backend.measure()
    assert (size.entries, size.bytes) == (3, 4000)
    # In place of what was there: only the difference counts.
    assert list(await backend.write("d", b"d" * 100, 60, ["t"])) == []
    assert (await backend.measure()).bytes == 2100


async def test_a_redis_that_is_gone_is_said_once_and_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with run_redis() as redis:
        cache = open_cache(redis, "gone")
        asked = question()
        await cache.keep(asked, entry(asked), None)
        assert await cache.find_exact(asked) is not None
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            assert await cache.find_exact(asked) is None
            assert not await cache.keep(asked, entry(asked), None)
        await cache.follow_others()
    assert cache.counts.errors == {"backend": 101}
    assert len(caplog.records) == 1
    with pytest.raises(BackendError):
        await cache.deletions.delete_tenant("acme")
    await cache.close()
