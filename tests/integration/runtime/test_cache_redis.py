"""A cache shared by two runtimes through a real Redis."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from evenkeel.embedding import load_encoder
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.backend import BackendError
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.redis_backend import RedisBackend
from tests.fixtures.redis_process import RedisProcess, run_redis
from tests.unit.runtime.response_cache.questions import SERVING, entry, question

pytestmark = pytest.mark.integration

TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisProcess]:
    with run_redis() as running:
        yield running


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


async def test_entries_expire(backend: RedisBackend) -> None:
    await backend.write("a", b"a", 0.05, [])
    deadline = time.monotonic() + 120
    while (await backend.read(["a"])) != [None]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_what_is_tagged_is_found_and_deleted(backend: RedisBackend) -> None:
    await backend.write("a", b"a", 60, ["t", "u"])
    await backend.write("b", b"b", 60, ["t"])
    assert await backend.find_tagged("u") == ["a"]
    assert await backend.delete(["a", "unknown"]) == 1
    assert await backend.read(["a", "b"]) == [None, b"b"]
    assert (await backend.measure()).bytes == 1


async def test_what_one_runtime_learns_the_others_know(redis: RedisProcess) -> None:
    first, second = open_cache(redis, "shared"), open_cache(redis, "shared")
    known, later = question(), question("Do you have lamps?")
    await first.keep(known, entry(known, "Send it back."))
    # All there is at first, then what is announced.
    await second.follow_others()
    await first.keep(later, entry(later, "Yes."))
    await second.follow_others()
    assert len(second.index) == 2
    asked = question("Please, how can I return the items?")
    sketch = second.sketch(asked)
    assert sketch is not None
    near = (await second.find_near(asked, sketch)).hit
    assert near is not None and near.entry.text == "Send it back."
    # Deleted by one, gone for the other: at once as an answer, then from its index.
    assert await first.deletions.delete_tenant("acme") == 2
    assert (await second.find_near(asked, sketch)).hit is None
    await second.follow_others()
    assert len(second.index) == 0
    await first.close()
    await second.close()


async def test_rubbish_in_redis_is_deleted(redis: RedisProcess) -> None:
    cache = open_cache(redis, "rubbish")
    asked = question()
    backend = RedisBackend(redis.url, "rubbish", 1 << 20, TIMEOUT_S)
    await backend.write(asked.id, b"\xc1rubbish", 60, [])
    assert await cache.find_exact(asked) is None
    assert cache.counts.errors == {"corrupt_entry": 1}
    assert await backend.read([asked.id]) == [None]
    await backend.close()
    await cache.close()


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
