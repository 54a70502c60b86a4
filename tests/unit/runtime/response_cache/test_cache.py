"""Looking up, keeping and deleting answers, also where the backend fails or holds rubbish."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from evenkeel.embedding import DIMENSIONS, load_encoder
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.backend import BackendError, Changes
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.entry import encode_entry
from evenkeel_runtime.response_cache.hit_class import NearHit
from evenkeel_runtime.response_cache.memory_backend import MemoryBackend
from evenkeel_runtime.response_cache.question import Question
from evenkeel_runtime.response_cache.settings_file import CachePolicy
from evenkeel_runtime.response_cache.state import CacheState, describe
from evenkeel_runtime.wire.caller import Caller
from tests.fixtures.manual_clock import ManualClock
from tests.unit.runtime.response_cache.questions import SERVING, entry, question

PARAPHRASE = "Please, how can I return the items?"
NEAR_MISS = "How do I return an item without a receipt?"


class FailingBackend(MemoryBackend):
    """A backend that answers only while it is well."""

    is_well = False

    async def read(self, entry_ids: Sequence[str], *, is_use: bool = True) -> list[bytes | None]:
        if not self.is_well:
            raise BackendError("gone")
        return await super().read(entry_ids, is_use=is_use)

    async def write(
        self, entry_id: str, data: bytes, ttl_s: float, tags: Sequence[str]
    ) -> Sequence[str]:
        if not self.is_well:
            raise BackendError("gone")
        return await super().write(entry_id, data, ttl_s, tags)


class SharedBackend(MemoryBackend):
    """A backend that another runtime has filled; each call waits for the network."""

    async def read(self, entry_ids: Sequence[str], *, is_use: bool = True) -> list[bytes | None]:
        await asyncio.sleep(0)
        return await super().read(entry_ids, is_use=is_use)

    async def read_changes(self) -> Changes:
        return Changes(added=await self.find_all())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
async def cache(clock: ManualClock, tmp_path: Path) -> AsyncIterator[ResponseCache]:
    backend = MemoryBackend(1 << 20, clock)
    audit = AuditLog(tmp_path / "audit.jsonl")
    opened = ResponseCache(SERVING, backend, load_encoder(), audit, clock)
    yield opened
    await opened.close()


async def keep(cache: ResponseCache, asked: Question, text: str = "Send it back.") -> None:
    assert await cache.keep(asked, entry(asked, text))


async def find_near(cache: ResponseCache, asked: Question) -> NearHit | None:
    return (await cache.find_near(asked, cache.search(asked))).hit


async def test_an_answer_is_found_again_until_it_expires(
    cache: ResponseCache, clock: ManualClock
) -> None:
    asked = question()
    assert await cache.find_exact(asked) is None
    await keep(cache, asked)
    found = await cache.find_exact(asked)
    assert found is not None and found.text == "Send it back."
    clock.now_s += asked.ttl_s
    assert await cache.find_exact(asked) is None
    assert len(cache.index) == 0


async def test_a_paraphrase_is_near_and_a_near_miss_is_refused(cache: ResponseCache) -> None:
    await keep(cache, question())
    for text, refused_by in ((PARAPHRASE, None), (NEAR_MISS, "negation")):
        asked = question(text)
        near = await find_near(cache, asked)
        assert near is not None and near.refused_by == refused_by
        assert near.similarity > 0.7


async def test_a_refused_neighbour_gives_way_to_one_that_may_be_served(
    cache: ResponseCache,
) -> None:
    await keep(cache, question("How can I not return the items?"), "wrong")
    await keep(cache, question(), "right")
    asked = question(PARAPHRASE)
    near = await find_near(cache, asked)
    assert near is not None and near.entry.text == "right"


async def test_another_tenants_answer_is_not_near(cache: ResponseCache) -> None:
    await keep(cache, question())
    asked = question(PARAPHRASE, caller=Caller(tenant="other"))
    assert await find_near(cache, asked) is None


async def test_near_misses_are_kept_without_their_texts(cache: ResponseCache) -> None:
    await keep(cache, question())
    asked = question(NEAR_MISS)
    near = await find_near(cache, asked)
    assert near is not None
    assert cache.record_near_miss(asked, near) is not None
    said = TypeAdapter(CacheState).dump_json(await describe(cache)).decode()
    assert '"refused_by":"negation"' in said
    assert "receipt" not in said


async def test_a_cut_off_answer_is_no_neighbour(cache: ResponseCache) -> None:
    asked = question()
    cut_off = replace(entry(asked), finish_reason="length")
    assert await cache.keep(asked, cut_off)
    assert await cache.find_exact(asked) is not None
    assert len(cache.index) == 0


async def test_an_answer_beyond_the_bound_is_not_kept(tmp_path: Path) -> None:
    policy = CachePolicy(max_entry_bytes=1024, routes=SERVING.routes)
    cache = ResponseCache(policy, MemoryBackend(1 << 20), None, AuditLog(None))
    asked = question()
    assert not await cache.keep(asked, entry(asked, "x" * 2000), None)
    assert cache.counts.not_kept == {"too_large": 1}
    await cache.close()


async def test_an_answer_beyond_all_of_the_memory_is_not_kept() -> None:
    cache = ResponseCache(SERVING, MemoryBackend(4096), load_encoder(), AuditLog(None))
    asked = question()
    assert not await cache.keep(asked, entry(asked, "x" * 2000))
    assert (cache.counts.stored, cache.counts.not_kept) == (0, {"too_large": 1})
    assert len(cache.index) == 0
    await cache.close()


async def test_evicted_answers_leave_the_index(clock: ManualClock) -> None:
    policy = CachePolicy(max_bytes=4096, routes=SERVING.routes)
    cache = ResponseCache(policy, MemoryBackend(4096, clock), load_encoder(), AuditLog(None), clock)
    for number in range(5):
        asked = question(f"Do you have lamp {number}?")
        await cache.keep(asked, entry(asked))
    size = await cache.measure()
    assert size is not None and 0 < size.entries == len(cache.index) < 5
    await cache.close()


async def test_requests_are_answered_while_many_entries_of_others_are_indexed() -> None:
    backend = SharedBackend(1 << 24)
    filling, following = (
        ResponseCache(SERVING, backend, load_encoder(), AuditLog(None)) for _ in range(2)
    )
    for number in range(200):
        await keep(filling, question(f"Do you have lamp {number}?"))
    work = asyncio.create_task(following.follow_others())
    sizes = set()
    while not work.done():
        await asyncio.sleep(0)
        sizes.add(len(following.index))
    assert max(sizes) == 200
    assert len(sizes) > 8
    await filling.close()
    await following.close()


class InterruptedBackend(SharedBackend):
    """A shared backend that lists all entries each time, and sometimes fails to read them."""

    num_reads = 0
    fails_at: int | None = None

    async def read(self, entry_ids: Sequence[str], *, is_use: bool = True) -> list[bytes | None]:
        self.num_reads += 1
        if self.num_reads == self.fails_at:
            raise BackendError("slow")
        return await super().read(entry_ids, is_use=is_use)

    async def read_changes(self) -> Changes:
        return Changes(await self.find_all(), is_complete=True)


async def test_a_rebuild_of_the_index_goes_on_where_it_failed_and_keeps_what_is_there() -> None:
    backend = InterruptedBackend(1 << 24)
    filling, following = (
        ResponseCache(SERVING, backend, load_encoder(), AuditLog(None)) for _ in range(2)
    )
    asked = [question(f"Do you have lamp {number}?") for number in range(100)]
    for each in asked:
        await keep(filling, each)
    backend.fails_at = 4
    await following.follow_others()
    assert len(following.index) == 60
    assert following.counts.errors == {"backend": 1}
    await following.follow_others()
    assert len(following.index) == 100
    assert backend.num_reads == 6
    # What is gone leaves the index, and nothing is read twice.
    await backend.delete([asked[7].id])
    await following.follow_others()
    assert len(following.index) == 99 and asked[7].id not in following.index
    assert backend.num_reads == 6
    await filling.close()
    await following.close()


async def test_rubbish_is_deleted_counted_and_said_once(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    backend = MemoryBackend(1 << 20, clock)
    cache = ResponseCache(SERVING, backend, load_encoder(), AuditLog(None), clock)
    first, second = question(), question("Do you have lamps?")
    await keep(cache, second)
    (stolen,) = await backend.read([second.id])
    assert stolen is not None
    for rubbish in (b"\xc1rubbish", b"", stolen, stolen[:-9]):
        await backend.write(first.id, rubbish, 60, [])
        with caplog.at_level(logging.WARNING):
            assert await cache.find_exact(first) is None
        assert await backend.read([first.id]) == [None]
    assert cache.counts.errors == {"corrupt_entry": 4}
    assert len(caplog.records) == 1
    await cache.close()


@pytest.mark.parametrize(
    "vector",
    [
        pytest.param(b"abc", id="no numbers"),
        pytest.param(bytes(10), id="too few"),
        pytest.param(bytes(4 * DIMENSIONS), id="too many"),
        pytest.param(bytes(2 * DIMENSIONS), id="of length 0"),
        pytest.param(np.full(DIMENSIONS, np.nan, np.float16).tobytes(), id="not a number"),
        pytest.param(np.full(DIMENSIONS, np.inf, np.float16).tobytes(), id="infinite"),
        pytest.param(np.ones(DIMENSIONS, np.float16).tobytes(), id="too long"),
    ],
)
async def test_an_entry_with_a_damaged_embedding_costs_no_other_its_hits(vector: bytes) -> None:
    backend = SharedBackend(1 << 24)
    filling, following = (
        ResponseCache(SERVING, backend, load_encoder(), AuditLog(None)) for _ in range(2)
    )
    damaged = question("Do you have lamp 0?")
    stored = replace(
        entry(damaged), is_comparable=True, vector=vector, expires_at_s=time.time() + 600
    )
    await backend.write(damaged.id, encode_entry(stored), 600, [])
    await keep(filling, question())
    await following.follow_others()
    near = await find_near(following, question(PARAPHRASE))
    assert near is not None and near.refused_by is None
    assert damaged.id not in following.index
    assert following.counts.errors == {"corrupt_entry": 1}
    assert await backend.read([damaged.id]) == [None]
    await filling.close()
    await following.close()


async def test_an_embedding_is_shared() -> None:
    backend = SharedBackend(1 << 24)
    filling, following = (
        ResponseCache(SERVING, backend, load_encoder(), AuditLog(None)) for _ in range(2)
    )
    asked = question()
    await filling.keep(asked, entry(asked), load_encoder().encode(asked.text))
    await following.follow_others()
    assert following.index.find_embedding(asked.id) is not None
    assert following.counts.errors == {}
    await filling.close()
    await following.close()


async def test_a_backend_that_is_gone_is_said_once_and_when_it_is_back(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    backend = FailingBackend(1 << 20, clock)
    cache = ResponseCache(SERVING, backend, load_encoder(), AuditLog(None), clock)
    asked = question()
    with caplog.at_level(logging.WARNING):
        assert await cache.find_exact(asked) is None
        assert not await cache.keep(asked, entry(asked))
        assert cache.counts.errors == {"backend": 2}
        backend.is_well = True
        await keep(cache, asked)
    assert [r.getMessage() for r in caplog.records] == [
        "cache backend not responding, the model answers instead: gone",
        "cache backend responding again",
    ]
    await cache.close()


async def test_deletion_reaches_a_person_and_a_tenant_and_is_audited(
    cache: ResponseCache, tmp_path: Path
) -> None:
    ann, bob = question(user="ann"), question("Do you have lamps?", user="bob")
    other = question(caller=Caller(tenant="other"), user="ann")
    for asked in (ann, bob, other):
        await keep(cache, asked)
    assert await cache.deletions.delete_subject("acme", "ann") == 1
    assert await cache.find_exact(ann) is None
    assert await cache.find_exact(bob) is not None
    assert await cache.find_exact(other) is not None
    assert await cache.deletions.delete_tenant("acme") == 1
    assert await cache.deletions.delete_tenant("acme") == 0
    assert len(cache.index) == 1
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["entries"] for line in lines] == [1, 1, 0]
    assert "ann" not in "".join(lines)


async def test_a_verdict_that_changes_what_is_served_is_an_event(
    cache: ResponseCache, tmp_path: Path
) -> None:
    await keep(cache, question())
    asked = question(PARAPHRASE)
    near = await find_near(cache, asked)
    assert near is not None
    changes = [cache.record_verdict(asked, near, is_same=True) for _ in range(600)]
    said = [change for change in changes if change is not None]
    after = "cosine 0.7, lead 0"
    assert [(c.before, c.after, c.reason) for c in said] == [(None, after, "certified")]
    assert cache.counts.changes == {"certified": 1}
    (line,) = (tmp_path / "audit.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert (event["event"], event["after"], event["limit"]) == ("control", after, 0.02)
    assert event["kind"] == "same_words"
    assert event["bound"] < 0.02


async def test_an_audit_log_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "folder").mkdir()
    audit = AuditLog(tmp_path / "folder")
    cache = ResponseCache(SERVING, MemoryBackend(1 << 20), None, audit)
    await keep(cache, question())
    with caplog.at_level(logging.WARNING):
        assert await cache.deletions.delete_tenant("acme") == 1
        assert await cache.deletions.delete_tenant("acme") == 0
    assert cache.audit.failures.num_errors == 2
    assert len(caplog.records) == 1
