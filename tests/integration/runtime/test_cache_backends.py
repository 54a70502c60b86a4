"""What each storage of the cache does alike: memory, a real Redis, and Qdrant in this process.

Qdrant in this process runs its client's own reimplementation of the server in Python. It does not
prove what a server does: the network, its indexes, several writers at once, a restart.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from evenkeel.embedding import load_encoder
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.backend import Backend, BackendError
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.memory_backend import OVERHEAD_BYTES, MemoryBackend
from evenkeel_runtime.response_cache.qdrant_backend import IN_MEMORY, QdrantBackend, connect
from evenkeel_runtime.response_cache.redis_backend import RedisBackend
from tests.fixtures.redis_process import RedisProcess
from tests.fixtures.served_model import free_port
from tests.unit.runtime.response_cache.questions import SERVING, entry, question

TIMEOUT_S = 10.0
Open = Callable[[int], Backend]


@asynccontextmanager
async def opening(kind: str, redis: RedisProcess, name: str) -> AsyncIterator[Open]:
    """Yield what opens the same storage with a number of bytes, as often as it is called."""
    opened: list[Backend] = []
    client = connect(IN_MEMORY, None, TIMEOUT_S)

    def open_one(max_bytes: int) -> Backend:
        if kind == "memory":
            backend: Backend = MemoryBackend(max_bytes + 3 * OVERHEAD_BYTES)
        elif kind == "redis":
            backend = RedisBackend(redis.url, f"test:{name}", max_bytes, TIMEOUT_S)
        else:
            backend = QdrantBackend(client, "test", max_bytes, TIMEOUT_S)
        opened.append(backend)
        return backend

    yield open_one
    for backend in opened:
        await backend.close()


@pytest.fixture(params=["memory", "redis", "qdrant"])
async def open_backend(redis: RedisProcess, request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    async with opening(request.param, redis, request.node.name) as open_one:
        yield open_one


@pytest.fixture(params=["redis", "qdrant"])
async def open_shared(redis: RedisProcess, request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    async with opening(request.param, redis, request.node.name) as open_one:
        yield open_one


async def test_what_is_written_is_read_replaced_and_deleted(open_backend: Open) -> None:
    backend = open_backend(10_000)
    assert await backend.read([]) == []
    assert list(await backend.write("a", b"\x00\xff", 600, ["t"])) == []
    assert await backend.read(["a", "unknown"]) == [b"\x00\xff", None]
    await backend.write("a", b"again", 600, ["t"])
    assert await backend.read(["a"]) == [b"again"]
    assert (await backend.measure()).entries == 1
    assert await backend.delete(["a", "unknown"]) == 1
    assert await backend.delete([]) == 0
    assert await backend.read(["a"]) == [None]
    assert (await backend.measure()).entries == 0


async def test_the_limit_holds_and_the_least_recently_read_goes_first(open_backend: Open) -> None:
    backend = open_backend(4000)
    for name in "abc":
        assert list(await backend.write(name, name.encode() * 1000, 600, ["t"])) == []
        await asyncio.sleep(0.002)
    assert await backend.read(["a"]) == [b"a" * 1000]
    evicted = list(await backend.write("d", b"d" * 2000, 600, ["t"]))
    assert evicted[0] == "b" and not {"a", "d"} & set(evicted)
    assert await backend.read(["a", "b", "d"]) == [b"a" * 1000, None, b"d" * 2000]
    assert await backend.find_tagged("t") == sorted({*"abcd"} - set(evicted))


async def test_a_runtime_that_starts_uses_nothing_by_reading_all_of_it(open_shared: Open) -> None:
    def open_cache() -> ResponseCache:
        return ResponseCache(SERVING, open_shared(3_000), load_encoder(), AuditLog(None))

    cache = open_cache()
    asked = [question(f"Do you have lamp {number}?") for number in range(8)]
    for each in asked[:6]:
        await cache.keep(each, entry(each, "y" * 100))
        await asyncio.sleep(0.002)
    # All but the last three are used again.
    for each in asked[:3]:
        assert await cache.find_exact(each) is not None
        await asyncio.sleep(0.002)
    started = open_cache()
    await started.follow_others()
    assert len(started.index) == 6
    # Room is made for these.
    for each in asked[6:]:
        await cache.keep(each, entry(each, "y" * 500))
    left = [await cache.find_exact(each) is not None for each in asked]
    assert all(left[:3] + left[6:])
    assert not left[3] and left[3:6] == sorted(left[3:6])


async def test_what_never_fits_replaces_nothing_else(open_backend: Open) -> None:
    backend = open_backend(4000)
    await backend.write("a", b"a" * 1000, 600, [])
    await backend.write("x", b"x", 600, [])
    assert list(await backend.write("x", b"x" * 100_000, 600, [])) == ["x"]
    assert await backend.read(["a", "x"]) == [b"a" * 1000, None]


async def test_entries_expire(open_backend: Open) -> None:
    backend = open_backend(4000)
    await backend.write("a", b"a", 0.05, ["t"])
    deadline = time.monotonic() + 120
    while (await backend.read(["a"])) != [None]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_what_is_tagged_is_found(open_backend: Open) -> None:
    backend = open_backend(10_000)
    await backend.write("a", b"a", 600, ["t", "u"])
    await backend.write("b", b"b", 600, ["t"])
    assert await backend.find_tagged("u") == ["a"]
    assert await backend.find_tagged("t") == ["a", "b"]
    assert await backend.find_tagged("v") == []
    assert sorted(await backend.find_all()) == ["a", "b"]
    await backend.delete(["a"])
    assert await backend.find_tagged("t") == ["b"]
    assert await backend.find_all() == ["b"]


async def test_many_entries_are_found_and_deleted(open_backend: Open) -> None:
    backend = open_backend(8 << 20)
    for number in range(1100):
        await backend.write(f"entry {number}", b"x", 600, ["t"])
    found = await backend.find_tagged("t")
    assert len(found) == len(await backend.find_all()) == 1100
    assert await backend.delete(found) == 1100
    assert (await backend.measure()).entries == 0


async def test_what_one_runtime_learns_the_others_know(open_shared: Open) -> None:
    first, second = (
        ResponseCache(SERVING, open_shared(1 << 20), load_encoder(), AuditLog(None))
        for _ in range(2)
    )
    known, later = question(), question("Do you have lamps?")
    await first.keep(known, entry(known, "Send it back."))
    # All there is at first, then what is new.
    await second.follow_others()
    await first.keep(later, entry(later, "Yes."))
    await second.follow_others()
    assert len(second.index) == 2
    asked = question("Please, how can I return the items?")
    nearest = second.search(asked)
    near = (await second.find_near(asked, nearest)).hit
    assert near is not None and near.entry.text == "Send it back."
    # Deleted by one, it is no answer for the other.
    assert await first.deletions.flush("all") == 2
    assert (await second.find_near(asked, nearest)).hit is None
    assert await second.find_exact(known) is None


async def test_rubbish_in_a_shared_storage_is_deleted(open_shared: Open) -> None:
    backend = open_shared(1 << 20)
    cache = ResponseCache(SERVING, backend, None, AuditLog(None))
    asked = question()
    await backend.write(asked.id, b"\xc1rubbish", 600, [])
    assert await cache.find_exact(asked) is None
    assert cache.counts.errors == {"corrupt_entry": 1}
    assert await backend.read([asked.id]) == [None]


async def _hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1000)
    writer.write(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    await writer.drain()
    writer.close()


@pytest.mark.parametrize("fault", ["nobody", "hangs", "fails"])
@pytest.mark.parametrize("kind", ["redis", "qdrant"])
async def test_a_storage_that_is_down_is_said_once_and_not_waited_for(
    kind: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    server, limit_s = None, 0.5
    if fault == "nobody":
        port = free_port()
    else:
        server = await asyncio.start_server(_hang if fault == "hangs" else _refuse, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
    if kind == "redis":
        backend: Backend = RedisBackend(f"redis://127.0.0.1:{port}/0", "test", 4000, limit_s)
    else:
        client = connect(f"http://127.0.0.1:{port}", None, limit_s)
        backend = QdrantBackend(client, "test", 4000, limit_s)
    cache = ResponseCache(SERVING, backend, None, AuditLog(None))
    asked = question()
    began_s = time.monotonic()
    with caplog.at_level(logging.WARNING, "evenkeel_runtime"):
        for _ in range(50):
            assert await cache.find_exact(asked) is None
            assert not await cache.keep(asked, entry(asked), None)
        await cache.follow_others()
    # One time-out, then it is left alone for a while: waited for each time, it took twice as long.
    assert time.monotonic() - began_s < 50 * limit_s
    assert cache.counts.errors == {"backend": 101}
    assert len([r for r in caplog.records if r.name.startswith("evenkeel")]) == 1
    with pytest.raises(BackendError):
        await cache.deletions.flush("all")
    await cache.close()
    if server is not None:
        server.close()
        # Let the connections end before the loop does.
        deadline = time.monotonic() + 120
        while len(asyncio.all_tasks()) > 1:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
