"""The arrival middleware between a server and an app, both in a few lines of ASGI."""

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evenkeel.spans import Status
from evenkeel_runtime.compression.compressor import Compressor
from evenkeel_runtime.compression.settings_file import CompressionPolicy
from evenkeel_runtime.request import conversation
from evenkeel_runtime.request.arrival import OPERATION_OF_PATH, ArrivalMiddleware
from evenkeel_runtime.request.hook import EngineReader, RequestHook
from evenkeel_runtime.request.trace import CURRENT_REQUEST, HttpRequest
from evenkeel_runtime.wire.cause import Cause
from evenkeel_runtime.wire.observation import Observation

Handler = Callable[[Any, Any, Any], Awaitable[None]]
# What vLLM's routes do that ask no model: they render, count, and look after the server.
WITHOUT_A_MODEL = re.compile(
    r"/(ping|pause|resume|sleep|wake_up|shutdown.*|abort_requests|collective_rpc|(de)?tokenize|"
    r"(start|stop|init|finish|update|reset|release)_.*|is_scaling_.*|scale_.*|fault_.*|weight_.*|"
    r"v1/(un)?load_lora_adapter|.*/(de)?render|v1/messages/count_tokens|v1/responses/.*/cancel)"
)


@dataclass
class Notebook:
    seen: list[Observation] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)

    def record(self, observation: Observation) -> None:
        self.seen.append(observation)

    def record_internal_error(self, error: Exception) -> None:
        raise error

    def count_malformed_headers(self, names: tuple[str, ...]) -> None:
        self.malformed += names


@dataclass
class Exchanged:
    notebook: Notebook
    sent: list[Any]
    error: BaseException | None


async def exchange(
    app: Handler,
    body: bytes = b"{}",
    path: str = "/v1/chat/completions",
    method: str = "POST",
    headers: list[tuple[bytes, bytes]] | None = None,
    has_cache: bool = False,
    compressor: Compressor | None = None,
) -> Exchanged:
    notebook = Notebook()
    reader = EngineReader(
        lambda params: True,
        lambda run, output: 0,
        lambda run, seen: None,
        lambda i: [],
        lambda i: None,
    )
    hook = RequestHook(notebook, reader, "support")  # type: ignore[arg-type]
    hook.has_cache = has_cache
    hook.compressor = compressor
    state = SimpleNamespace(engine_client=SimpleNamespace(hook=hook))
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": headers or [],
        "app": SimpleNamespace(state=state),
    }
    parts = [body[start : start + 65536] for start in range(0, len(body), 65536)]
    incoming = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    incoming[-1]["more_body"] = False
    incoming.append({"type": "http.disconnect"})
    sent: list[Any] = []

    async def receive() -> Any:
        return incoming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    error = None
    try:
        await ArrivalMiddleware(app)(scope, receive, send)
    except Exception as raised:
        error = raised
    assert CURRENT_REQUEST.get() is None
    return Exchanged(notebook, sent, error)


def answer(status: int, body: object = None) -> Handler:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": status})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})

    return app


async def test_what_passes_through_is_unchanged() -> None:
    done = await exchange(answer(200, {"id": 1}))
    assert [m["type"] for m in done.sent] == ["http.response.start", "http.response.body"]
    assert done.notebook.seen == []


@pytest.mark.parametrize(
    ("asked", "answered", "model", "error_type"),
    [
        pytest.param(
            {"model": "nope"},
            {"error": {"type": "NotFoundError"}},
            "nope",
            "NotFoundError",
            id="vLLM says what is wrong",
        ),
        pytest.param({"model": 3}, {"error": "text"}, "support", "http_404", id="says nothing"),
        pytest.param({"model": " \n"}, None, "support", "http_404", id="no name of a model"),
        pytest.param({"model": "x" * 999}, None, "x" * 128, "http_404", id="an endless name"),
        pytest.param([1], [2], "support", "http_404", id="not even objects"),
    ],
)
async def test_a_refusal_is_recorded(
    asked: object, answered: object, model: str, error_type: str
) -> None:
    done = await exchange(answer(404, answered), json.dumps(asked).encode())
    (seen,) = done.notebook.seen
    assert (seen.status, seen.model, seen.error_type) == (Status.ERROR, model, error_type)
    assert seen.operation == "chat"


async def test_a_rate_limit_is_shed() -> None:
    assert (await exchange(answer(429))).notebook.seen[0].status is Status.SHED


async def test_a_handler_that_raises_is_recorded_and_still_raises() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("broken")

    done = await exchange(app)
    assert isinstance(done.error, RuntimeError)
    assert [s.error_type for s in done.notebook.seen] == ["unhandled"]


async def test_a_client_that_leaves_before_an_answer_has_aborted() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await receive()

    assert [s.status for s in (await exchange(app)).notebook.seen] == [Status.ABORTED]


async def test_a_client_that_left_before_the_engine_was_asked_has_aborted() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await receive()
        # What vLLM's cancelled handler leaves: 200 and `null`, to nobody.
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"null"})

    assert [s.status for s in (await exchange(app)).notebook.seen] == [Status.ABORTED]


async def test_a_body_nested_without_end_is_recorded_as_refused() -> None:
    done = await exchange(answer(400), b"[" * 60_000)
    assert [s.error_type for s in done.notebook.seen] == ["http_400"]
    assert [s.http_status for s in done.notebook.seen] == [400]


async def test_a_disconnect_after_the_last_byte_is_none() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answer(400)(scope, receive, send)
        await receive()

    assert [s.status for s in (await exchange(app)).notebook.seen] == [Status.ERROR]


async def test_the_handler_sees_the_request_in_its_context() -> None:
    tenants = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = CURRENT_REQUEST.get()
        tenants.append(request and request.caller.tenant)
        await answer(200)(scope, receive, send)

    headers = [(b"x-evenkeel-tenant", b"acme"), (b"x-evenkeel-prompt", b"bad")]
    done = await exchange(app, headers=headers)
    assert tenants == ["acme"]
    assert done.notebook.malformed == ["x-evenkeel-prompt"]


@pytest.mark.parametrize(
    ("path", "method"),
    [("/tokenize", "POST"), ("/v1/chat/completions", "GET"), ("/metrics", "GET")],
)
async def test_other_requests_are_not_followed(path: str, method: str) -> None:
    assert (await exchange(answer(500), path=path, method=method)).notebook.seen == []


@pytest.mark.parametrize(
    ("layer", "named"), [("exact", [(b"x-evenkeel-cache", b"exact")]), (None, [])]
)
async def test_a_streams_head_waits_until_it_is_known_who_answers(
    layer: str | None, named: list[tuple[bytes, bytes]]
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
        request = CURRENT_REQUEST.get()
        assert request is not None and bytes(request.body) == b"{}"
        assert request.path == "/v1/chat/completions"
        request.cache_header = layer
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    done = await exchange(app, has_cache=True)
    assert [m["type"] for m in done.sent] == ["http.response.start", *["http.response.body"] * 2]
    assert done.sent[0]["headers"] == [(b"a", b"b"), *named]
    assert done.error is None


SESSION = [(b"x-evenkeel-session", b"s-1")]


@pytest.mark.parametrize("headers", [[], SESSION], ids=["no session", "session"])
async def test_a_long_chat_reaches_the_cache_as_a_whole(headers: list[tuple[bytes, bytes]]) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 400_000}]}).encode()
    kept = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        request = CURRENT_REQUEST.get()
        assert request is not None
        kept.append(bytes(request.body))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x"})

    await exchange(app, body, headers=headers, has_cache=True)
    assert kept == [body]


@pytest.mark.parametrize(("route", "is_held"), [(b"long", True), (b"other", False), (None, False)])
async def test_only_chats_whose_route_is_shortened_are_held_for_it(
    route: bytes | None, is_held: bool
) -> None:
    held = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        request = CURRENT_REQUEST.get()
        assert request is not None
        held.append(Cause.HOST_COMPRESSION in request.holds)

    compressor = Compressor(CompressionPolicy(routes=("long",)), len)
    headers = [] if route is None else [(b"x-evenkeel-route", route)]
    await exchange(app, b'{"messages": []}', headers=headers, compressor=compressor)
    assert held == [is_held]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_a_long_request_that_is_refused_has_its_model(path: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await answer(400)(scope, receive, send)

    body = json.dumps({"input": "x" * 400_000, "model": "other"}).encode()
    done = await exchange(app, body, path, headers=SESSION)
    assert [seen.model for seen in done.notebook.seen] == ["other"]


async def test_a_conversation_is_recognised_by_what_the_client_sent_not_by_what_is_left_of_it() -> (
    None
):
    told = "We sat on the porch and the evening was warm. The lamps were lit and we talked. " * 20
    texts = [told, "That sounds lovely.", "Thank you.", "You are welcome.", "Why does it flicker?"]
    turns = [{"role": ("user", "assistant")[n % 2], "content": t} for n, t in enumerate(texts)]
    body = json.dumps({"messages": turns}).encode()
    followed: list[HttpRequest] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = CURRENT_REQUEST.get()
        assert request is not None
        followed.append(request)
        await answer(200)(scope, receive, send)

    compressor = Compressor(CompressionPolicy(min_tokens=20), lambda text: len(text.split()))
    await exchange(app, body, compressor=compressor)
    assert compressor.counts.verdicts == {"sent": 1}
    (request,) = followed
    assert len(request.body) < len(body)
    assert request.message_digests == conversation.digest(body)


async def test_a_stream_that_fails_before_its_first_bytes_has_sent_nothing() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("engine")

    done = await exchange(app, has_cache=True)
    assert done.sent == []
    assert isinstance(done.error, RuntimeError)


def test_every_route_of_vllm_that_asks_a_model_is_followed() -> None:
    found = find_spec("vllm")
    assert found is not None and found.origin is not None
    sources = (Path(found.origin).parent / "entrypoints").rglob("*.py")
    post = re.compile(r"router\.post\(\s*\"([^\"]+)\"")
    routes = {route for path in sources for route in post.findall(path.read_text())}
    assert routes >= {"/v1/chat/completions", "/invocations"}
    unknown = {r for r in routes if r not in OPERATION_OF_PATH and not WITHOUT_A_MODEL.fullmatch(r)}
    assert unknown == set()
    assert set(OPERATION_OF_PATH) <= routes
