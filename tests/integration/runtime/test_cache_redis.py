"""What only a real Redis does: exact eviction, and going away while in use."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from redis import Redis

from evenkeel.embedding import load_encoder
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.backend import BackendError, Changes, RefusedError
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


def open_cache(redis: RedisProcess, prefix: str, max_bytes: int = 1 << 20) -> ResponseCache:
    shared = RedisBackend(redis.url, prefix, max_bytes, TIMEOUT_S)
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


async def fill(cache: ResponseCache, num: int) -> None:
    for number in range(num):
        asked = question(f"Do you have lamp {number}?")
        await cache.keep(asked, entry(asked, os.urandom(4000).hex()))


async def test_a_full_redis_is_read_and_deleted_from(caplog: pytest.LogCaptureFixture) -> None:
    with run_redis("--maxmemory", "3mb", "--maxmemory-policy", "noeviction") as redis:
        cache = open_cache(redis, "full", 1 << 30)
        await fill(cache, 400)
        stored = cache.counts.stored
        assert 0 < stored < 400 and cache.counts.errors == {"backend": 400 - stored}
        first = question("Do you have lamp 0?")
        assert await cache.find_exact(first) is not None
        # Another process, to which Redis has not said yet what it deletes with.
        other = open_cache(redis, "full", 1 << 30)
        assert await other.deletions.delete_tenant("acme") == stored
        assert await cache.find_exact(first) is None
        await cache.keep(first, entry(first))
        assert await cache.find_exact(first) is not None
        assert len(caplog.records) == 1 and "OutOfMemory" in caplog.text
        await cache.close()
        await other.close()


@pytest.mark.parametrize("policy", ["volatile-lru", "volatile-random", "allkeys-random"])
async def test_what_redis_evicts_takes_no_answer_out_of_reach_of_a_deletion(policy: str) -> None:
    with run_redis("--maxmemory", "3mb", "--maxmemory-policy", policy) as redis:
        cache = open_cache(redis, "evicted", 1 << 30)
        await fill(cache, 400)
        asked = [question(f"Do you have lamp {number}?") for number in range(400)]
        if policy != "allkeys-random":
            assert any([await cache.find_exact(each) for each in asked])
        await cache.deletions.delete_tenant("acme")
        assert not any([await cache.find_exact(each) for each in asked])
        size = await cache.measure()
        assert size is not None and size.entries == 0 and size.bytes >= 0
        await cache.close()


@pytest.mark.parametrize("lost", ["recency", "details", "total"])
async def test_answers_are_kept_again_after_redis_has_evicted_an_account_of_them(
    redis: RedisProcess, backend: RedisBackend, request: pytest.FixtureRequest, lost: str
) -> None:
    for name in "abc":
        await backend.write(name, name.encode() * 1000, 60, ["t"])
    with Redis.from_url(redis.url) as client:
        client.delete(f"test:{request.node.name}:2:{lost}")
    for name in "defg":
        assert await backend.write(name, name.encode() * 1000, 60, ["t"]) == []
    assert all(await backend.read(list("defg")))
    size = await backend.measure()
    assert (size.entries, size.bytes) == (4, 4000)
    assert await backend.write("h", b"h" * 1000, 60, ["t"]) == ["d"]


async def test_a_client_that_decodes_finds_what_is_to_be_deleted(redis: RedisProcess) -> None:
    backend = RedisBackend(f"{redis.url}?decode_responses=true", "decoding", 4000, TIMEOUT_S)
    await backend.write("a", b"a", 60, ["s", "t"])
    assert await backend.find_tagged("t") == ["a"]
    await backend.close()


async def test_keys_of_another_program_are_refused_and_nothing_else_fails(
    redis: RedisProcess, backend: RedisBackend, request: pytest.FixtureRequest
) -> None:
    prefix = f"test:{request.node.name}:2"
    client = Redis.from_url(redis.url)
    client.set(f"{prefix}:details", "x")
    client.set(f"{prefix}:total", "many")
    for call in (backend.read(["a"]), backend.write("a", b"a", 60, ["t"]), backend.find_all()):
        with pytest.raises(RefusedError, match="WRONGTYPE"):
            await call
    client.delete(f"{prefix}:details")
    with pytest.raises(BackendError, match="ValueError"):
        await backend.measure()
    client.close()


def fill_index(redis: RedisProcess, prefix: str, num: int) -> None:
    """Leave what `redis_write.lua` leaves of entries, without their data."""
    with Redis.from_url(redis.url) as client:
        for start in range(0, num, 5000):
            ids = [f"{number:040d}" for number in range(start, start + 5000)]
            client.zadd(f"{prefix}:2:recency", dict.fromkeys(ids, 1e9))
            client.hset(f"{prefix}:2:details", mapping=dict.fromkeys(ids, "1200 tenant-x"))
        client.set(f"{prefix}:2:total", 1200 * num)


async def test_the_index_is_rebuilt_from_many_entries_in_short_calls(redis: RedisProcess) -> None:
    fill_index(redis, "many", 50_000)
    backend = RedisBackend(redis.url, "many", 256 << 20, TIMEOUT_S)
    with Redis.from_url(redis.url) as client:
        client.config_resetstat()
        changes = await backend.read_changes()
        calls = client.info("commandstats")
    assert changes.is_complete and len(set(changes.added)) == len(changes.added) == 50_000
    assert calls["cmdstat_hscan"]["calls"] >= 50
    assert not {"cmdstat_zrange", "cmdstat_hgetall", "cmdstat_hkeys"} & calls.keys()
    # What comes later is announced, once.
    await backend.write("new", b"x", 60, [])
    assert await backend.read_changes() == Changes(["new"], [])
    assert await backend.read_changes() == Changes([], [])
    await backend.close()


@asynccontextmanager
async def hanging_at(redis: RedisProcess, command: bytes) -> AsyncIterator[str]:
    """Yield the address of a Redis that does not answer one command."""
    host, port = urlsplit(redis.url).hostname, urlsplit(redis.url).port

    async def forward(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stop: bytes
    ) -> None:
        while data := await reader.read(1 << 16):
            if stop and stop in data:
                await reader.read()
                break
            writer.write(data)
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, asked = await asyncio.open_connection(host, port)
        await asyncio.gather(forward(reader, asked, command), forward(answers, writer, b""))

    async with await asyncio.start_server(connect, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        server.close()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("command", [b"XREVRANGE", b"HSCAN"])
async def test_a_rebuild_that_hangs_makes_no_request_go_without_the_cache(
    command: bytes, redis: RedisProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async with hanging_at(redis, command) as url:
        shared = RedisBackend(url, "hangs", 1 << 20, 2.0)
        cache = ResponseCache(SERVING, shared, load_encoder(), AuditLog(None))
        asked = question()
        assert await cache.keep(asked, entry(asked))
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                await cache.follow_others()
                assert await cache.find_exact(asked) is not None
        assert cache.counts.errors == {"backend": 2}
        assert len(caplog.records) == 1 and "other runtimes" in caplog.text
        await cache.close()
