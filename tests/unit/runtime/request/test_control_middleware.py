"""The control middleware between a server and an app, both in a few lines of ASGI."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse

from evenkeel_runtime.control.config import ControlMode, Quota
from evenkeel_runtime.control.gate import MAX_WAITING
from evenkeel_runtime.control.service import ControlService
from evenkeel_runtime.request.control_middleware import BodyBudget, _Waiting
from evenkeel_runtime.wire.caller import Caller
from tests.fixtures.gate_connection import START, App, CachingApp, Connection, make_service, soon


async def test_a_request_waits_for_the_one_inside_and_keeps_its_body(tmp_path: Path) -> None:
    service = make_service(tmp_path)
    app = App(asyncio.Event())
    first, second = Connection(service, app), Connection(service, app, "batch")
    tasks = [asyncio.create_task(first.ask()), asyncio.create_task(second.ask())]
    await soon(lambda: service.control.gate.count_waiting() == {"batch": 1})
    assert app.bodies == [b"chat"]
    app.may_end.set()
    await asyncio.gather(*tasks)
    assert app.bodies == [b"chat", b"batch"]
    assert [first.status, second.status] == [200, 200]
    assert service.control.gate.num_inside == 0
    assert service.control.read()["chat"].num_good == 1


@pytest.mark.parametrize(
    "body",
    [
        b"event: response.created\ndata: {}\n\n",
        b"event: response.in_progress\ndata: {}\n\n",
        b": keep-alive\n\n",
    ],
)
async def test_what_vllm_sends_before_the_engine_answers_is_no_first_token(
    tmp_path: Path, body: bytes
) -> None:
    service = make_service(tmp_path)

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": body, "more_body": True})
        assert service.control.read() == {}
        item = b"event: response.output_item.added\ndata: {}\n\n"
        await send({"type": "http.response.body", "body": item, "more_body": True})
        assert service.control.read()["chat"].num_good == 1
        await send({"type": "http.response.body", "body": b""})

    await Connection(service, answer, path="/v1/responses").ask()


async def test_a_caller_who_leaves_the_queue_is_not_served(tmp_path: Path) -> None:
    service = make_service(tmp_path)
    app = App(asyncio.Event())
    first, second = Connection(service, app), Connection(service, app, "batch")
    task = asyncio.create_task(first.ask())
    waiting = asyncio.create_task(second.ask())
    await soon(lambda: service.control.gate.count_waiting() == {"batch": 1})
    second.leave()
    await waiting
    assert second.answers == []
    assert service.control.counts.admitted == {"chat": 1}
    assert service.control.gate.count_waiting() == {}
    app.may_end.set()
    await task
    assert app.bodies == [b"chat"]


async def test_bodies_of_those_who_wait_are_held_within_a_budget() -> None:
    budget, seen = BodyBudget(10), 0

    async def receive() -> Any:
        nonlocal seen
        seen += 1
        return {"type": "http.request", "body": b"x" * 8, "more_body": True}

    first, second = (_Waiting(receive, budget, None) for _ in range(2))
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    await first.wait(never, 0.5)
    # One message beyond what was left, and no more.
    assert (seen, budget.left) == (2, -6)
    await second.wait(never, 0.01)
    assert seen == 2
    first.give_back()
    assert budget.left == 10
    # What was read comes first, then the rest of the connection.
    bodies = [(await first.receive())["body"] for _ in range(3)]
    assert (bodies, seen) == ([b"x" * 8] * 3, 3)


@pytest.mark.parametrize("is_cached", [False, True], ids=["at the gate", "behind the cache"])
async def test_who_is_pushed_out_of_a_full_queue_is_told_at_once(
    tmp_path: Path, is_cached: bool
) -> None:
    service = make_service(tmp_path)
    control, may_end = service.control, asyncio.Event()
    app = CachingApp(may_end) if is_cached else App(may_end)
    cache = object() if is_cached else None
    control.queue(control.arrive(Caller(slo_class="chat"), 10))
    # All but one of those who may wait, due before the last.
    for _ in range(MAX_WAITING - 1):
        control.queue(control.arrive(Caller(slo_class="batch"), 10))
    last = Connection(service, app, "batch", cache=cache)
    waiting = asyncio.create_task(last.ask())
    await soon(lambda: control.gate.count_waiting()["batch"] == MAX_WAITING)
    control.queue(control.arrive(Caller(slo_class="chat"), 10))
    await waiting
    assert (last.status, json.loads(last.answers[1]["body"])["error"]["type"]) == (503, "shed")
    full = Connection(service, app, "batch", cache=cache)
    await full.ask()
    assert full.status == 503
    assert control.counts.refused == {("batch", "shed"): 2}
    assert control.gate.count_waiting() == {"batch": MAX_WAITING - 1, "chat": 1}


async def test_a_wait_beyond_the_deadline_is_refused_with_a_time_to_come_back(
    tmp_path: Path,
) -> None:
    service = make_service(tmp_path)
    app = App(asyncio.Event())
    first, second = Connection(service, app), Connection(service, app)
    task = asyncio.create_task(first.ask())
    await soon(lambda: service.control.gate.num_inside == 1)
    await second.ask()
    assert second.status == 503
    assert (b"retry-after", b"1") in second.answers[0]["headers"]
    error = json.loads(second.answers[1]["body"])["error"]
    assert error["type"] == "queue_deadline"
    app.may_end.set()
    await task
    assert service.control.counts.refused == {("chat", "queue_deadline"): 1}
    assert service.control.counts.admitted == {"chat": 1}


async def test_a_server_that_stops_frees_the_places(tmp_path: Path) -> None:
    service = make_service(tmp_path)
    app = App(asyncio.Event())
    tasks = [asyncio.create_task(Connection(service, app, "batch").ask()) for _ in range(3)]
    await soon(lambda: service.control.gate.count_waiting() == {"batch": 2})
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert service.control.gate.num_inside == 0
    assert service.control.gate.count_waiting() == {}


async def test_a_quota_is_answered_with_429(tmp_path: Path) -> None:
    service = make_service(tmp_path, tenant=Quota(requests_per_minute=1))
    app = App(asyncio.Event())
    app.may_end.set()
    first, second = Connection(service, app), Connection(service, app)
    await first.ask()
    await second.ask()
    assert [first.status, second.status] == [200, 429]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
@pytest.mark.parametrize("status", [401, 403])
async def test_a_caller_without_a_key_uses_no_tenants_quota(
    tmp_path: Path, path: str, status: int
) -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    service = make_service(tmp_path, tenant=Quota(requests_per_minute=1, active=1))
    for _ in range(3):
        stranger = Connection(service, refuse, path=path)
        await stranger.ask()
        assert stranger.status == status
    app = App(asyncio.Event())
    app.may_end.set()
    tenant = Connection(service, app, path=path)
    await tenant.ask()
    assert tenant.status == 200


@pytest.mark.parametrize("may_read", [False, True], ids=["by its head", "by its body"])
async def test_a_caller_without_a_key_takes_no_place_in_the_queue(
    tmp_path: Path, may_read: bool
) -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        if may_read:
            await receive()
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    service = make_service(tmp_path)
    app = App(asyncio.Event())
    first = Connection(service, app, path="/v1/responses")
    task = asyncio.create_task(first.ask())
    await soon(lambda: service.control.gate.num_inside == 1)
    stranger = Connection(service, refuse, path="/v1/responses")
    await stranger.ask()
    # Whatever reads the body first, as vLLM's handlers do, waits for its turn.
    assert stranger.status == (503 if may_read else 401)
    assert service.control.counts.refused.total() == may_read
    app.may_end.set()
    await task
    assert service.control.counts.admitted == {"chat": 1}


async def test_whoever_is_refused_while_the_app_reads_gets_the_refusal_alone(
    tmp_path: Path,
) -> None:
    async def read_all(scope: Any, receive: Any, send: Any) -> None:
        if (await receive())["type"] == "http.disconnect":
            # FastAPI answers a body that it cannot read; Starlette raises this.
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})
            raise ClientDisconnect

    service = make_service(tmp_path)
    app = App(asyncio.Event())
    task = asyncio.create_task(Connection(service, app, path="/v1/responses").ask())
    await soon(lambda: service.control.gate.num_inside == 1)
    late = Connection(service, read_all, path="/v1/responses")
    await late.ask()
    assert [message.get("status") for message in late.answers] == [503, None]
    gone = Connection(service, read_all, "batch", path="/v1/responses")
    gone.leave()
    await gone.ask()
    assert gone.answers == []
    assert service.control.gate.count_waiting() == {}
    app.may_end.set()
    await task


@pytest.mark.parametrize(
    ("path", "operation", "body", "num_late"),
    [
        ("/v1/responses", "chat", '{"input": "x", "stream": true}', 1),
        ("/v1/messages", "chat", '{"stream":true,"max_tokens":9}', 1),
        ("/v1/responses", "chat", '{"input": "x", "stream": false}', 0),
        ("/v1/responses", "chat", json.dumps({"input": '{"stream": true}'}), 0),
        ("/v1/embeddings", "embeddings", '{"input": "x", "stream": true}', 0),
    ],
)
async def test_a_streamed_request_that_waits_is_late_before_its_turn(
    tmp_path: Path, path: str, operation: str, body: str, num_late: int
) -> None:
    now_s = 0.0
    service = make_service(tmp_path, clock=lambda: now_s)
    app = App(asyncio.Event())
    first = asyncio.create_task(Connection(service, app).ask())
    await soon(lambda: service.control.gate.num_inside == 1)
    half = len(body) // 2
    waiting = Connection(service, app, "batch", path, operation=operation)
    waiting.send_bodies(body[:half].encode(), body[half:].encode())
    second = asyncio.create_task(waiting.ask())
    await soon(lambda: service.control.gate.count_waiting() == {"batch": 1})
    await soon(lambda: waiting.num_unread == 0)
    await asyncio.sleep(0)
    now_s = 601.0
    counted = service.control.read().get("batch")
    assert (0 if counted is None else counted.num_bad) == num_late
    app.may_end.set()
    await asyncio.gather(first, second)
    assert app.bodies[-1] == body[:half].encode()


def responses(service: ControlService, app: Any, slo_class: str = "chat") -> Connection:
    """Return a request that waits in the middleware, not at the engine's door."""
    return Connection(service, app, slo_class, "/v1/responses")


@pytest.mark.parametrize("at_once", [False, True], ids=["cancelled and repeated", "two at once"])
async def test_a_request_joins_the_queue_once_however_often_its_body_is_asked_for(
    tmp_path: Path, at_once: bool
) -> None:
    may_end, bodies = asyncio.Event(), []

    async def read_twice(scope: Any, receive: Any, send: Any) -> None:
        if at_once:
            reads = [asyncio.create_task(receive()) for _ in range(2)]
            bodies.append((await reads[0])["body"])
            reads[1].cancel()
        else:
            request = Request(scope, receive)
            for _ in range(3):
                assert not await request.is_disconnected()
                await asyncio.sleep(0)
            bodies.append(await request.body())
        await send(START)
        await may_end.wait()
        await send({"type": "http.response.body", "body": b""})

    service = make_service(tmp_path)
    gate, app = service.control.gate, App(asyncio.Event())
    first = asyncio.create_task(responses(service, app).ask())
    await soon(lambda: gate.num_inside == 1)
    second = asyncio.create_task(responses(service, read_twice, "batch").ask())
    await soon(lambda: gate.count_waiting())
    for _ in range(10):
        await asyncio.sleep(0)
    assert gate.count_waiting() == {"batch": 1}
    app.may_end.set()
    await first
    await soon(lambda: bodies == [b"batch"])
    may_end.set()
    await second
    assert (gate.num_inside, gate.count_waiting()) == (0, {})
    assert service.control.counts.admitted == {"chat": 1, "batch": 1}


async def test_reads_that_are_cancelled_and_repeated_share_one_deadline(tmp_path: Path) -> None:
    async def poll(scope: Any, receive: Any, send: Any) -> None:
        async with asyncio.timeout(20):
            while True:
                with suppress(TimeoutError):
                    assert (await asyncio.wait_for(receive(), 0.01))["type"] == "http.disconnect"
                    return

    service = make_service(tmp_path)
    app = App(asyncio.Event())
    first = asyncio.create_task(responses(service, app).ask())
    await soon(lambda: service.control.gate.num_inside == 1)
    second = responses(service, poll)
    await second.ask()
    assert second.status == 503
    assert service.control.counts.refused == {("chat", "queue_deadline"): 1}
    app.may_end.set()
    await first


async def test_an_answer_that_the_app_has_begun_is_neither_queued_nor_refused(
    tmp_path: Path,
) -> None:
    may_end = asyncio.Event()

    async def parts() -> AsyncIterator[bytes]:
        yield b"1"
        await may_end.wait()
        yield b"2"

    async def answer_unread(scope: Any, receive: Any, send: Any) -> None:
        # Listens for a disconnect while it streams.
        await StreamingResponse(parts())(scope, receive, send)

    service = make_service(tmp_path)
    app = App(asyncio.Event())
    first = asyncio.create_task(responses(service, app).ask())
    await soon(lambda: service.control.gate.num_inside == 1)
    second = responses(service, answer_unread)
    task = asyncio.create_task(second.ask())
    await soon(lambda: len(second.answers) == 2)
    assert service.control.gate.count_waiting() == {}
    # Its class may wait for 0.05 s.
    await asyncio.sleep(0.1)
    may_end.set()
    await task
    assert [answer.get("status") for answer in second.answers] == [200, None, None, None]
    assert service.control.counts.refused == {}
    app.may_end.set()
    await first


@pytest.mark.parametrize("is_gone", [False, True], ids=["refused", "gone"])
@pytest.mark.parametrize("error", [KeyError("body"), ExceptionGroup("read", [ClientDisconnect()])])
async def test_what_the_app_raises_for_an_unserved_request_does_not_replace_the_refusal(
    tmp_path: Path, error: Exception, is_gone: bool
) -> None:
    async def fail(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        raise error

    service = make_service(tmp_path)
    app = App(asyncio.Event())
    first = asyncio.create_task(responses(service, app).ask())
    await soon(lambda: service.control.gate.num_inside == 1)
    second = responses(service, fail, "batch" if is_gone else "chat")
    if is_gone:
        second.leave()
    await second.ask()
    assert second.status == (None if is_gone else 503)
    app.may_end.set()
    await first
    with pytest.raises(type(error)):
        await responses(service, fail).ask()


@pytest.mark.parametrize("is_gone", [False, True], ids=["refused", "gone"])
async def test_an_unserved_request_leaves_the_queue_before_the_app_returns(
    tmp_path: Path, is_gone: bool
) -> None:
    may_return, has_read = asyncio.Event(), asyncio.Event()

    async def linger(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        has_read.set()
        await may_return.wait()

    service = make_service(tmp_path)
    app = App(asyncio.Event())
    first = asyncio.create_task(responses(service, app).ask())
    await soon(lambda: service.control.gate.num_inside == 1)
    unserved = responses(service, linger, "batch" if is_gone else "chat")
    if is_gone:
        unserved.leave()
    second = asyncio.create_task(unserved.ask())
    await has_read.wait()
    assert service.control.gate.count_waiting() == {}
    app.may_end.set()
    await first
    assert service.control.gate.num_inside == 0
    may_return.set()
    await second


async def test_a_streamed_request_is_known_before_all_of_its_body_has_arrived(
    tmp_path: Path,
) -> None:
    visit = make_service(tmp_path).control.arrive(Caller(slo_class="batch"), 10)
    bodies = [b'{"stream": t', b'rue, "input": "', b"x" * 100]

    async def receive() -> Any:
        return {"type": "http.request", "body": bodies.pop(0), "more_body": True}

    waiting = _Waiting(receive, BodyBudget(100), visit)
    await waiting.wait(asyncio.get_running_loop().create_future(), 0.01)
    assert (bodies, visit.is_streamed) == ([], True)


@pytest.mark.parametrize("is_served", [False, True], ids=["that waits", "that was served"])
async def test_an_app_that_polls_sees_that_the_caller_of_a_request_has_left(
    tmp_path: Path, is_served: bool
) -> None:
    has_begun, has_seen = asyncio.Event(), asyncio.Event()

    async def poll(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        if is_served:
            await request.body()
        has_begun.set()
        while not await request.is_disconnected():
            await asyncio.sleep(0.001)
        has_seen.set()

    service = make_service(tmp_path)
    app = App(asyncio.Event())
    first = asyncio.create_task(responses(service, app).ask())
    await soon(lambda: service.control.gate.num_inside == 1)
    second = responses(service, poll, "batch")
    task = asyncio.create_task(second.ask())
    if is_served:
        await soon(lambda: service.control.gate.count_waiting())
        app.may_end.set()
    await has_begun.wait()
    second.leave()
    async with asyncio.timeout(20):
        await has_seen.wait()
    app.may_end.set()
    await asyncio.gather(first, task)
    assert service.control.counts.admitted == {"chat": 1, **({"batch": 1} if is_served else {})}


async def test_a_read_that_outlives_the_request_joins_no_queue(tmp_path: Path) -> None:
    reads: list[asyncio.Task[Any]] = []

    async def leave_reads_behind(scope: Any, receive: Any, send: Any) -> None:
        reads.append(asyncio.create_task(receive()))
        # Without a timer: its class may wait for 0.05 s only.
        while not service.control.gate.count_waiting():
            await asyncio.sleep(0)
        reads.append(asyncio.create_task(receive()))

    service = make_service(tmp_path)
    app = App(asyncio.Event())
    first = asyncio.create_task(responses(service, app).ask())
    await soon(lambda: service.control.gate.num_inside == 1)
    second = responses(service, leave_reads_behind)
    await second.ask()
    await asyncio.wait(reads, timeout=0.1)
    for read in reads:
        read.cancel()
    assert service.control.gate.count_waiting() == {}
    assert service.control.counts.refused == {}
    app.may_end.set()
    await first
    assert service.control.gate.num_inside == 0


async def test_switched_off_nothing_waits(tmp_path: Path) -> None:
    service = make_service(tmp_path, mode=ControlMode.OFF)
    app = App(asyncio.Event())
    tasks = [asyncio.create_task(Connection(service, app).ask()) for _ in range(3)]
    await soon(lambda: len(app.bodies) == 3)
    app.may_end.set()
    await asyncio.gather(*tasks)
    assert service.control.counts.admitted == {}
