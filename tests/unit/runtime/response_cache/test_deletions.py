"""Answers are deleted by what they belong to; what was under way is not stored afterwards."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evenkeel.embedding import load_encoder
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.backend import BackendError
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.cached_engine import CachedEngine
from evenkeel_runtime.response_cache.hit_class import KINDS, HitClass, NearHit
from evenkeel_runtime.response_cache.memory_backend import MemoryBackend
from evenkeel_runtime.response_cache.settings_file import CachePolicy, HitMode, RoutePolicy
from evenkeel_runtime.text import guards
from evenkeel_runtime.wire.caller import Caller
from tests.unit.runtime.response_cache.questions import entry, question
from tests.unit.runtime.response_cache.test_slow_embedding import Model, Server, SlowEncoder
from tests.unit.runtime.serve.pages_client import make_client

POLICY = CachePolicy(
    routes=(RoutePolicy(route="faq", mode=HitMode.SERVE), RoutePolicy(mode=HitMode.SERVE))
)
CALLERS = {
    "faq, docs@1": Caller(tenant="acme", route="faq", knowledge=("docs@1",)),
    "faq, docs@2": Caller(tenant="acme", route="faq", knowledge=("docs@2", "prices@7")),
    "help, prompt 1": Caller(
        tenant="acme", route="help", prompt_name="support", prompt_version="1"
    ),
    "prompt 2": Caller(tenant="other", prompt_name="support", prompt_version="2"),
}


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[ResponseCache]:
    audit = AuditLog(tmp_path / "audit.jsonl")
    cache = ResponseCache(POLICY, MemoryBackend(1 << 20), None, audit)
    for caller in CALLERS.values():
        asked = question(caller=caller, policy=POLICY)
        assert await cache.keep(asked, entry(asked))
    yield cache
    await cache.close()


async def delete(cache: ResponseCache, query: str, **headers: str) -> tuple[int, Any]:
    async with make_client(cache=SimpleNamespace(cache=cache)) as client:
        answer = await client.delete(f"/v1/evenkeel/cache?{query}", headers=headers)
    return answer.status_code, answer.json()


@pytest.mark.parametrize(
    ("query", "left"),
    [
        pytest.param("route=faq", {"help, prompt 1", "prompt 2"}, id="route"),
        pytest.param("route=help", CALLERS.keys() - {"help, prompt 1"}, id="of no own policy"),
        pytest.param("route=*", {"faq, docs@1", "faq, docs@2"}, id="the file's rest"),
        pytest.param("prompt=support", {"faq, docs@1", "faq, docs@2"}, id="prompt"),
        pytest.param("prompt=support@2", CALLERS.keys() - {"prompt 2"}, id="version"),
        pytest.param("prompt=support@3", set(CALLERS), id="unknown version"),
        pytest.param("knowledge=docs", {"help, prompt 1", "prompt 2"}, id="source"),
        pytest.param("knowledge=docs@1", CALLERS.keys() - {"faq, docs@1"}, id="its version"),
        pytest.param("tenant=other", CALLERS.keys() - {"prompt 2"}, id="tenant"),
        pytest.param("all=true", set(), id="everything"),
    ],
)
async def test_what_is_named_goes_and_the_rest_stays(
    query: str, left: set[str], cache: ResponseCache, tmp_path: Path
) -> None:
    status, said = await delete(cache, query)
    assert (status, said) == (200, {"deleted": len(CALLERS) - len(left)})
    for name, caller in CALLERS.items():
        found = await cache.find_exact(question(caller=caller, policy=POLICY))
        assert (found is not None) is (name in left), name
    (line,) = (tmp_path / "audit.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert event["event"] == ("deleted" if "tenant" in query else "flushed")
    assert event["entries"] == said["deleted"]
    assert cache.counts.deleted == said["deleted"]


async def test_a_page_of_a_browser_cannot_delete_anything(cache: ResponseCache) -> None:
    status, _ = await delete(cache, "all=true", origin="http://elsewhere")
    size = await cache.measure()
    assert status == 403
    assert size is not None and size.entries == len(CALLERS)


async def test_a_flushed_route_is_not_served_what_another_one_stored(cache: ResponseCache) -> None:
    # The route that only watches stores the same question's answer, for as long as it declares.
    faq, watching = (Caller(tenant="acme", route=route) for route in ("faq", "watching"))
    asked = question(caller=watching, policy=POLICY)
    assert await cache.keep(asked, entry(asked))
    assert await delete(cache, "route=faq") == (200, {"deleted": 2})
    assert await cache.find_exact(question(caller=faq, policy=POLICY)) is None
    assert await cache.find_exact(asked) is not None


@pytest.mark.parametrize(
    ("query", "is_left"),
    [
        ("all=true", False),
        ("tenant=acme", False),
        ("tenant=acme&subject=ann", False),
        ("tenant=acme&subject=bob", False),
        ("route=*", False),
        ("tenant=other", True),
        ("tenant=other&subject=ann", True),
        ("route=faq", True),
    ],
)
async def test_texts_of_near_misses_are_deleted_with_either_question(
    query: str, is_left: bool
) -> None:
    policy = POLICY.model_copy(update={"shows_texts": True})
    cache = ResponseCache(policy, MemoryBackend(1 << 20), None, AuditLog(None))
    record_near_miss(cache, policy)
    assert (await delete(cache, query))[0] == 200
    assert [miss.question for miss in cache.near_misses] == (["Can I return it?"] * is_left)
    await cache.close()


async def test_near_misses_lose_their_texts_when_the_file_no_longer_shows_them() -> None:
    policy = POLICY.model_copy(update={"shows_texts": True})
    cache = ResponseCache(policy, MemoryBackend(1 << 20), None, AuditLog(None))
    record_near_miss(cache, policy)
    cache.configure(policy)
    assert [miss.other for miss in cache.near_misses] == ["Can I not return it?"]
    cache.configure(POLICY)
    assert [(miss.question, miss.other) for miss in cache.near_misses] == [(None, None)]
    await cache.close()


def record_near_miss(cache: ResponseCache, policy: CachePolicy) -> None:
    """Let Ann's question be near one of Bob's."""
    acme = Caller(tenant="acme")
    asked = question("Can I return it?", caller=acme, policy=policy, user="ann")
    other = question("Can I not return it?", caller=acme, policy=policy, user="bob")
    near = NearHit(entry(other), HitClass(KINDS[-1], 0.9, 0.2), KINDS[-1])
    assert cache.record_near_miss(asked, near) is not None


@pytest.mark.parametrize(
    "query",
    ["", "all=false", "all", "route=faq&all=true", "subject=ann", "route=faq&subject=ann", "x=1"],
)
async def test_what_names_nothing_or_too_much_deletes_nothing(
    query: str, cache: ResponseCache
) -> None:
    status, said = await delete(cache, query)
    assert (status, said["status"]) == (400, 400), said
    assert cache.counts.deleted == 0


async def test_only_with_a_key(cache: ResponseCache) -> None:
    status, _ = await delete(cache, "all=true", authorization="Bearer other")
    assert (status, cache.counts.deleted) == (401, 0)


class PausedModel(Model):
    """A model that answers once it is released."""

    def __init__(self) -> None:
        self.has_begun, self.goes_on = asyncio.Event(), asyncio.Event()

    async def generate(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        self.has_begun.set()
        await self.goes_on.wait()
        async for output in super().generate(*args, **options):
            yield output


@pytest.mark.parametrize("kill", [False, True], ids=["flushed", "switched off"])
async def test_an_answer_that_was_under_way_is_not_stored(kill: bool) -> None:
    server = Server(HitMode.SERVE, SlowEncoder(), 10)
    model = PausedModel()
    server.engine = CachedEngine(server.cache, server.hook, model)
    asking = asyncio.create_task(server.ask("How do I return an item?"))
    await model.has_begun.wait()
    if kill:
        server.cache.configure(server.cache.policy.model_copy(update={"enabled": False}))
    else:
        await server.cache.deletions.flush("route", "*")
    model.goes_on.set()
    await asking
    await server.settle()
    assert server.cache.counts.stored == 0
    assert server.cache.counts.not_kept == {"route_off" if kill else "deleted_meanwhile": 1}
    await server.cache.close()


async def test_a_question_that_was_under_way_is_not_listed() -> None:
    encoder = SlowEncoder()
    encoder.opened.set()
    server = Server(HitMode.DRAFT, encoder, 10)
    server.cache.configure(server.cache.policy.model_copy(update={"shows_texts": True}))
    await server.know("How do I return an item?")
    near = "How do I return an item without a receipt?"
    await server.ask(near)
    await server.settle()
    assert [miss.question for miss in server.cache.near_misses] == [near]
    await server.cache.deletions.delete_tenant("acme")
    await server.know("How do I return an item?")
    model = PausedModel()
    server.engine = CachedEngine(server.cache, server.hook, model)
    asking = asyncio.create_task(server.ask(near))
    await model.has_begun.wait()
    await server.cache.deletions.delete_subject("acme", "ann")
    model.goes_on.set()
    await asking
    await server.settle()
    assert list(server.cache.near_misses) == []
    await server.cache.close()


@pytest.mark.parametrize("query", ["all=true", "tenant=acme", "tenant=acme&subject=ann"])
async def test_what_was_compared_is_not_kept_in_memory(query: str) -> None:
    server = Server(HitMode.SERVE, SlowEncoder(), 10)
    await server.know("How do I return an item?", "Please, how can I return the item?")
    assert any(type(each) is guards._Read for each in gc.get_objects())
    status, _ = await delete(server.cache, query)
    assert status == 200
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is guards._Read]
    await server.cache.close()


class UnreliableBackend(MemoryBackend):
    """As a shared backend: applies a write whose reply is lost, and may then be down."""

    def __init__(self, *, loses_reply: bool) -> None:
        super().__init__(1 << 24)
        self._loses_reply = loses_reply
        self.has_begun, self.goes_on = asyncio.Event(), asyncio.Event()
        self.is_down = False

    async def write(
        self, entry_id: str, data: bytes, ttl_s: float, tags: Sequence[str]
    ) -> Sequence[str]:
        self.has_begun.set()
        await self.goes_on.wait()
        evicted = await super().write(entry_id, data, ttl_s, tags)
        if self._loses_reply:
            raise BackendError("timed out")
        return evicted

    async def delete(self, entry_ids: Sequence[str]) -> int:
        if self.is_down:
            raise BackendError("backing off")
        return await super().delete(entry_ids)


@pytest.mark.parametrize("loses_reply", [False, True], ids=["reply", "no reply"])
@pytest.mark.parametrize("is_down", [False, True], ids=["up", "down"])
async def test_an_answer_written_during_a_deletion_is_never_found(
    loses_reply: bool, is_down: bool
) -> None:
    backend = UnreliableBackend(loses_reply=loses_reply)
    cache = ResponseCache(POLICY, backend, load_encoder(), AuditLog(None))
    asked = question(policy=POLICY)
    keeping = asyncio.create_task(cache.keep(asked, entry(asked)))
    await backend.has_begun.wait()
    assert await cache.deletions.delete_tenant("acme") == 0
    backend.is_down = is_down
    backend.goes_on.set()
    assert not await keeping
    assert cache.counts.not_kept == {"deleted_meanwhile": 1}
    assert await cache.find_exact(asked) is None
    assert cache.search(question("Please, how can I return the items?", policy=POLICY)) == []
    # It is removed as soon as the backend responds.
    await cache.follow_others()
    assert await backend.find_all() == ([asked.id] if is_down else [])
    backend.is_down = False
    await cache.follow_others()
    assert await backend.find_all() == []
    assert await cache.find_exact(asked) is None
    await cache.close()


async def test_an_answer_stored_after_a_deletion_replaces_what_is_left_of_the_earlier_one() -> None:
    backend = UnreliableBackend(loses_reply=False)
    cache = ResponseCache(POLICY, backend, None, AuditLog(None))
    asked = question(policy=POLICY)
    keeping = asyncio.create_task(cache.keep(asked, entry(asked, "earlier")))
    await backend.has_begun.wait()
    await cache.deletions.delete_tenant("acme")
    backend.is_down = True
    backend.goes_on.set()
    assert not await keeping
    assert await cache.keep(asked, entry(asked, "later"))
    backend.is_down = False
    await cache.follow_others()
    found = await cache.find_exact(asked)
    assert found is not None and found.text == "later"
    await cache.close()


async def test_while_too_many_answers_wait_for_their_removal_none_is_stored() -> None:
    backend = UnreliableBackend(loses_reply=False)
    backend.is_down = True
    backend.goes_on.set()
    cache = ResponseCache(POLICY, backend, None, AuditLog(None))
    for number in range(10_000):
        await cache.deletions.undo(f"{number}")
    asked = question(policy=POLICY)
    assert not await cache.keep(asked, entry(asked))
    assert cache.counts.not_kept == {"deletions_pending": 1}
    backend.is_down = False
    await cache.follow_others()
    assert await cache.keep(asked, entry(asked))
    await cache.close()
