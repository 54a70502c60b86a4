"""Requests whose answer does not come to its end are requests of the cache all the same."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from evenkeel_runtime.response_cache.settings_file import HitMode
from tests.unit.runtime.response_cache.test_slow_embedding import ASKED, Model, Server, SlowEncoder


class Hanging(Model):
    """Gives the first part of an answer, and no further one."""

    def __init__(self) -> None:
        self.began = asyncio.Event()

    async def generate(self, *asked: Any, **options: Any) -> AsyncIterator[Any]:
        self.finish_reason = None  # type: ignore[assignment]
        async for output in super().generate(*asked, **options):
            yield output
        self.began.set()
        await asyncio.Event().wait()


class Broken(Model):
    async def generate(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise RuntimeError("engine")
        yield


async def open_server(mode: HitMode, model: Model) -> Server:
    server = Server(mode, SlowEncoder(), 10)
    await server.know("How do I return an item?")
    server.cache.counts.outcomes.clear()
    server.engine._engine = model
    return server


# A shadow's lookup may still be under way.
MODES = [
    pytest.param(HitMode.SERVE, {"draft"}, id="serve"),
    pytest.param(HitMode.DRAFT, {"draft"}, id="draft"),
    pytest.param(HitMode.SHADOW, {"shadow", "miss"}, id="shadow"),
]


@pytest.mark.parametrize(("mode", "outcomes"), MODES)
async def test_a_client_that_leaves_has_its_outcome(mode: HitMode, outcomes: set[str]) -> None:
    model = Hanging()
    server = await open_server(mode, model)
    asking = asyncio.create_task(server.ask(ASKED))
    async with asyncio.timeout(120):
        await model.began.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await server.settle()
    counts = server.cache.counts
    assert counts.outcomes.total() == 1 and set(counts.outcomes) <= outcomes
    assert counts.stored == 1
    await server.cache.close()


@pytest.mark.parametrize("mode", [HitMode.SERVE, HitMode.DRAFT])
async def test_a_client_that_leaves_during_the_lookup_has_its_outcome(
    mode: HitMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await open_server(mode, Model())
    began = asyncio.Event()

    async def hang(*_: Any, **__: Any) -> list[bytes | None]:
        began.set()
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(server.cache._backend, "read", hang)
    asking = asyncio.create_task(server.ask(ASKED))
    async with asyncio.timeout(120):
        await began.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await server.settle()
    assert server.cache.counts.outcomes == {"miss": 1}
    await server.cache.close()


@pytest.mark.parametrize(("mode", "outcomes"), MODES)
async def test_a_request_that_the_engine_fails_has_its_outcome(
    mode: HitMode, outcomes: set[str]
) -> None:
    server = await open_server(mode, Broken())
    with pytest.raises(RuntimeError):
        await server.ask(ASKED)
    await server.settle()
    counts = server.cache.counts
    assert counts.outcomes.total() == 1 and set(counts.outcomes) <= outcomes
    await server.cache.close()
