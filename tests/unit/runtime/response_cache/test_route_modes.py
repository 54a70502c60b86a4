"""A route put into shadow serves nothing, whatever is under way; only the file lets one serve."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.hit_class import KINDS, HitClass
from evenkeel_runtime.response_cache.memory_backend import MemoryBackend
from evenkeel_runtime.response_cache.settings_file import CachePolicy, HitMode, RoutePolicy
from evenkeel_runtime.response_cache.state import describe
from tests.unit.runtime.response_cache.test_slow_embedding import ASKED, Server, SlowEncoder
from tests.unit.runtime.serve.pages_client import make_client

REWORDED = "Please, how can I return all the items?"
POLICY = CachePolicy(
    routes=(
        RoutePolicy(route="faq", mode=HitMode.SERVE),
        RoutePolicy(route="drafted", mode=HitMode.DRAFT),
        RoutePolicy(route="watched", mode=HitMode.SHADOW),
        RoutePolicy(mode=HitMode.OFF),
    )
)


def cache_of(policy: CachePolicy, log: Path | None = None) -> ResponseCache:
    return ResponseCache(policy, MemoryBackend(1 << 20), None, AuditLog(log))


async def post(cache: ResponseCache, query: str, **headers: str) -> tuple[int, dict]:
    async with make_client(cache=SimpleNamespace(cache=cache)) as client:
        answer = await client.post(f"/v1/evenkeel/cache?{query}", headers=headers)
    return answer.status_code, answer.json()


@pytest.mark.parametrize(
    ("query", "status"),
    [
        pytest.param("route=faq&mode=shadow", 200, id="shadow"),
        pytest.param("route=faq&mode=serve", 200, id="serves already"),
        pytest.param("route=drafted&mode=shadow", 200, id="drafts are given up too"),
        pytest.param("route=nowhere&mode=shadow", 404, id="unknown route"),
        pytest.param("route=&mode=shadow", 404, id="no name"),
        pytest.param("route=*&mode=serve", 409, id="switched off in the file"),
        pytest.param("route=*&mode=shadow", 409, id="off is less than shadow"),
        pytest.param("route=watched&mode=serve", 409, id="the file does not let it serve"),
        pytest.param("route=watched&mode=shadow", 200, id="in shadow already"),
        pytest.param("route=faq&mode=off", 400, id="bad mode"),
        pytest.param("route=faq&mode=SHADOW", 400, id="in capitals"),
        pytest.param("route=faq", 400, id="no mode"),
        pytest.param("mode=shadow", 400, id="no route"),
        pytest.param("route=faq&mode=shadow&more=1", 400, id="something else"),
        pytest.param("route=faq&mode", 400, id="unreadable"),
        pytest.param("route=faq&mode=shadow&route=drafted", 400, id="two routes"),
        pytest.param("", 400, id="nothing"),
    ],
)
async def test_what_can_be_asked_for(query: str, status: int) -> None:
    cache = cache_of(POLICY)
    before = cache.modes.describe()
    found, said = await post(cache, query)
    assert found == status, said
    if status != 200:
        assert said["status"] == status and said["detail"]
        assert cache.modes.describe() == before


async def test_a_change_is_shown_logged_and_undone(tmp_path: Path) -> None:
    cache = cache_of(POLICY, tmp_path / "audit.jsonl")
    assert await post(cache, "route=faq&mode=shadow") == (
        200,
        {"route": "faq", "mode": "shadow", "was": "serve"},
    )
    assert (await describe(cache)).modes["faq"] == "shadow"
    await post(cache, "route=faq&mode=shadow")
    await post(cache, "route=faq&mode=serve")
    await post(cache, "route=drafted&mode=shadow")
    assert (await post(cache, "route=drafted&mode=serve"))[1]["mode"] == "draft"
    events = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(e["event"], e["route"], e["before"], e["after"]) for e in events] == [
        ("mode", "faq", "serve", "shadow"),
        ("mode", "faq", "shadow", "serve"),
        ("mode", "drafted", "draft", "shadow"),
        ("mode", "drafted", "shadow", "draft"),
    ]


async def test_a_page_of_a_browser_cannot_change_it() -> None:
    cache = cache_of(POLICY)
    await post(cache, "route=faq&mode=shadow")
    status, _ = await post(cache, "route=faq&mode=serve", origin="http://elsewhere")
    assert (status, cache.modes.describe()["faq"]) == (403, HitMode.SHADOW)


async def test_in_shadow_neither_the_same_nor_a_near_question_is_served() -> None:
    server = Server(HitMode.SERVE, SlowEncoder(hangs_on="never said"), 10)
    await server.know(ASKED, "How can I return an item?", "How do I return items?")
    served: list[str | None] = []

    async def ask(text: str) -> None:
        await server.ask(text)
        await server.settle()
        served.append(server.notebook.seen[-1].response_cache)

    await ask(ASKED)
    await post(server.cache, "route=*&mode=shadow")
    for text in (ASKED, REWORDED, "How can I return an item?"):
        await ask(text)
    await post(server.cache, "route=*&mode=serve")
    await ask(ASKED)
    assert served == ["exact", "shadow", "shadow", "shadow", "exact"]


async def test_what_is_being_looked_up_meanwhile_is_not_served_either() -> None:
    encoder = SlowEncoder(hangs_on="all the items")
    server = Server(HitMode.SERVE, encoder, 10)
    await server.know(ASKED)
    control = server.cache.control(server.cache.policy.routes[0])
    for kind in KINDS:
        for _ in range(600):
            control.record(HitClass(kind, 1.0, 1.0), is_wrong=False)
    asking = asyncio.create_task(server.ask(REWORDED))
    while not encoder.texts:
        await asyncio.sleep(0.01)
    await post(server.cache, "route=*&mode=shadow")
    encoder.opened.set()
    await asking
    await server.settle()
    assert server.notebook.seen[-1].response_cache == "shadow"
