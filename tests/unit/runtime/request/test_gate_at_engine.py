"""Requests that wait for control inside the app, behind the response cache."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from evenkeel_runtime.request.trace import CURRENT_REQUEST
from tests.fixtures.gate_connection import CachingApp, Connection, make_service, soon


async def test_what_the_cache_answers_needs_no_place(tmp_path: Path) -> None:
    service = make_service(tmp_path)
    app = CachingApp(asyncio.Event())
    first, hit, late = (
        Connection(service, app, name, cache=object()) for name in ("batch", "hit", "chat")
    )
    task = asyncio.create_task(first.ask())
    await soon(lambda: service.control.gate.num_inside == 1)
    await hit.ask()
    assert [message["type"][14:] for message in hit.answers] == ["start", "body"]
    # Full: what the engine must answer waits, and is refused as without a cache.
    await late.ask()
    assert late.status == 503
    assert json.loads(late.answers[1]["body"])["error"]["type"] == "queue_deadline"
    assert len(late.answers) == 2
    assert (app.num_entered, app.num_given_up) == (1, 1)
    app.may_end.set()
    await task
    assert first.status == 200
    assert service.control.gate.num_inside == 0
    assert service.control.counts.admitted == {"batch": 1}


async def test_a_caller_who_leaves_at_the_engines_door_is_not_served(tmp_path: Path) -> None:
    service = make_service(tmp_path)
    app = CachingApp(asyncio.Event())
    first, second = (Connection(service, app, "batch", cache=object()) for _ in range(2))
    task = asyncio.create_task(first.ask())
    await soon(lambda: service.control.gate.num_inside == 1)
    waiting = asyncio.create_task(second.ask())
    await soon(lambda: service.control.gate.count_waiting() == {"batch": 1})
    second.leave()
    await waiting
    assert second.answers == []
    assert service.control.gate.count_waiting() == {}
    app.may_end.set()
    await task
    assert app.num_entered == 1


@pytest.mark.parametrize("error", [None, KeyError("chunk")], ids=["lingers", "raises"])
async def test_a_refusal_at_the_engines_door_is_answered_whatever_the_app_does(
    tmp_path: Path, error: Exception | None
) -> None:
    may_return, has_left = asyncio.Event(), asyncio.Event()

    async def end_badly(scope: Any, receive: Any, send: Any) -> None:
        request = CURRENT_REQUEST.get()
        assert request is not None and request.door is not None
        await receive()
        answering = asyncio.create_task(request.door.enter())
        assert (await receive())["type"] == "http.disconnect"
        answering.cancel()
        has_left.set()
        await may_return.wait()
        if error is not None:
            raise error

    service = make_service(tmp_path)
    app = CachingApp(asyncio.Event())
    first = Connection(service, app, "batch", cache=object())
    second = Connection(service, end_badly, "chat", cache=object())
    task = asyncio.create_task(first.ask())
    await soon(lambda: service.control.gate.num_inside == 1)
    refused = asyncio.create_task(second.ask())
    await has_left.wait()
    # Out of the queue while the app is still busy.
    assert service.control.gate.count_waiting() == {}
    app.may_end.set()
    await task
    assert service.control.gate.num_inside == 0
    may_return.set()
    await refused
    assert second.status == 503
    assert service.control.counts.refused == {("chat", "queue_deadline"): 1}
