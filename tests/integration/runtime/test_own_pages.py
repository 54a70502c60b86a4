"""Who may see our own pages: every page, credential and root path, before vLLM's own app."""

import logging
from argparse import Namespace
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from vllm.entrypoints.serve.middleware.register import init_entrypoints_middleware

from evenkeel.watched_file import WatchedFile
from evenkeel_runtime.control.admission import AdmissionControl
from evenkeel_runtime.control.config import ControlConfig
from evenkeel_runtime.control.service import ControlService
from evenkeel_runtime.exporter.why_answers import WhyAnswers, WhyStore
from evenkeel_runtime.request.why import WhyClient
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.memory_backend import MemoryBackend
from evenkeel_runtime.serve.api import list_paths, make_api
from evenkeel_runtime.serve.own_pages import OWN_PAGES
from tests.unit.runtime.request.test_why import answer as explain
from tests.unit.runtime.response_cache.questions import SERVING, entry, question

KEY = "secret"
CACHE = "/v1/evenkeel/cache"
OPEN_METRICS = {"accept": "application/openmetrics-text"}
# One address for each page of `evenkeel_runtime.serve.api`, and whether it is open.
ADDRESSES = {
    "/control": False,
    "/why/chatcmpl-1": False,
    CACHE: False,
    "/metrics": True,
    "/v1/evenkeel/openapi.json": True,
    "/v1/evenkeel/docs": True,
}
CREDENTIALS: dict[str, list[str]] = {
    "none": [],
    "the key": [f"Bearer {KEY}"],
    "another key": ["Bearer other"],
    "lower case": [f"bearer {KEY}"],
    "two keys, the first wrong": ["Bearer wrong", f"Bearer {KEY}"],
    "no scheme": [KEY],
    "basic": [f"Basic {KEY}"],
    "padded": [f"Bearer {KEY} "],
    "empty": ["Bearer "],
}
GOOD = ("the key", "lower case")


@dataclass
class Place:
    """All that our pages show, behind one app."""

    control: ControlService
    hook: Any
    cache: Any
    left: Any

    def client(self, keys: list[str], root_path: str | None = None) -> httpx.AsyncClient:
        app = FastAPI()
        app.root_path = root_path  # type: ignore[assignment]
        args = Namespace(
            api_key=keys,
            allowed_origins=["*"],
            allow_credentials=False,
            allowed_methods=["*"],
            allowed_headers=["*"],
            enable_request_id_headers=False,
            middleware=[OWN_PAGES],
        )
        app.state.args = args
        app.state.engine_client = self

        @app.get("/metrics")
        def metrics() -> str:
            return "vLLM's own"

        init_entrypoints_middleware(args, app, ())
        transport = httpx.ASGITransport(app=app)
        return httpx.AsyncClient(transport=transport, base_url="http://server")


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    store = WhyStore()
    address = f"ipc://{tmp_path}/why"
    answers = WhyAnswers(address, store)
    answers.start()
    store.put("chatcmpl-1", "acme", explain())
    why = WhyClient(address)
    cache = ResponseCache(SERVING, MemoryBackend(1 << 20), None, AuditLog(None))
    asked = question()
    await cache.keep(asked, entry(asked), None)
    file = WatchedFile(tmp_path / "none", lambda _: ControlConfig(), logging.getLogger("tests"))
    control = ControlService(AdmissionControl(ControlConfig(), 1), file, lambda *_: None)
    yield Place(
        control,
        SimpleNamespace(why=why),
        SimpleNamespace(cache=cache),
        lambda: cache.find_exact(asked),
    )
    why.close()
    answers.close()
    await cache.close()


def headers(*authorizations: str) -> list[tuple[str, str]]:
    return [*OPEN_METRICS.items(), *(("authorization", value) for value in authorizations)]


def test_the_table_below_has_every_page() -> None:
    paths = {path.replace("{request_id:path}", "chatcmpl-1") for path in list_paths(make_api())}
    assert set(ADDRESSES) == paths


@pytest.mark.parametrize("root_path", [None, "", "/api", "/api/", "/v"])
@pytest.mark.parametrize("address", ADDRESSES)
async def test_every_page_that_is_not_open_asks_for_the_key(
    place: Place, address: str, root_path: str | None
) -> None:
    prefix = (root_path or "").rstrip("/")
    spellings = [prefix + address, address + "/", prefix + address.replace("c", "%63")]
    async with place.client([KEY, "unused"], root_path) as client:
        for path in spellings:
            for method in ("GET", "HEAD"):
                for name, given in CREDENTIALS.items():
                    answer = await client.request(method, path, headers=headers(*given))
                    is_open = ADDRESSES[address] or name in GOOD
                    assert answer.status_code == (200 if is_open else 401), (method, path, name)
                    assert (answer.content == b"") == (method == "HEAD")
                    assert int(answer.headers["content-length"]) > 0
                    if not is_open and method == "GET":
                        assert answer.headers["content-type"] == "application/problem+json"
                        assert answer.headers["www-authenticate"] == "Bearer"
                        assert (answer.json()["status"], answer.json()["title"]) == (
                            401,
                            "Unauthorized",
                        )


@pytest.mark.parametrize("address", ADDRESSES)
async def test_a_server_without_keys_shows_them_to_everybody(place: Place, address: str) -> None:
    async with place.client([]) as client:
        for given in CREDENTIALS.values():
            answer = await client.get(address, headers=headers(*given))
            assert answer.status_code == 200


@pytest.mark.parametrize(
    ("method", "query", "given", "status"),
    [
        ("DELETE", "tenant=acme", [], 401),
        ("DELETE", "tenant=acme", ["Bearer wrong"], 401),
        ("DELETE", "tenant=acme", ["Bearer secret"], 200),
        ("DELETE", "", ["Bearer secret"], 400),
        ("DELETE", "subject=ann", ["Bearer secret"], 400),
        ("DELETE", "tenant=acme&user=ann", ["Bearer secret"], 400),
        ("DELETE", "tenant=acme&tenant=acme", ["Bearer secret"], 400),
        ("DELETE", "tenant", ["Bearer secret"], 400),
        ("POST", "tenant=acme", [], 401),
        ("POST", "route=*&mode=shadow", ["Bearer wrong"], 401),
        ("POST", "tenant=acme", ["Bearer secret"], 400),
        ("PUT", "", ["Bearer secret"], 405),
    ],
)
async def test_only_a_good_deletion_with_the_key_deletes(
    place: Place, method: str, query: str, given: list[str], status: int
) -> None:
    async with place.client([KEY]) as client:
        answer = await client.request(method, f"{CACHE}?{query}", headers=headers(*given))
    assert answer.status_code == status
    assert ((await place.left()) is None) == (method == "DELETE" and status == 200)
    assert (answer.headers.get("allow") == "HEAD, OPTIONS, GET, DELETE, POST") == (status == 405)


@pytest.mark.parametrize("path", ["/control", "/why/chatcmpl-1", CACHE])
async def test_a_browsers_question_before_its_request_shows_nothing(
    place: Place, path: str
) -> None:
    asks = {"origin": "http://other", "access-control-request-method": "GET"}
    async with place.client([KEY]) as client:
        answer = await client.options(path, headers=asks)
        plain = await client.options(path)
    assert (answer.status_code, answer.text) == (200, "OK")
    assert plain.status_code in (404, 405)


@pytest.mark.parametrize(
    "path",
    ["/control/x", "//control", "/Control", "/controls", "/why", "/why/", "/v1/evenkeel", "/v1x"],
)
async def test_other_paths_are_vllms(place: Place, path: str) -> None:
    async with place.client([KEY]) as client:
        answer = await client.get(path, headers=headers(f"Bearer {KEY}"))
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})


async def test_metrics_in_prometheus_own_format_are_vllms(place: Place) -> None:
    async with place.client([KEY]) as client:
        assert (await client.get("/metrics")).json() == "vLLM's own"


async def test_websockets_are_vllms() -> None:
    from evenkeel_runtime.serve.own_pages import OwnPagesMiddleware

    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    middleware = OwnPagesMiddleware(app)
    for kind in ("websocket", "lifespan"):
        await middleware({"type": kind, "path": "/control"}, None, None)  # type: ignore[arg-type]
    assert seen == ["websocket", "lifespan"]


@pytest.mark.parametrize(
    ("tenant", "status"),
    [
        pytest.param(None, 200, id="an operator"),
        pytest.param("acme", 200, id="its tenant"),
        pytest.param("other", 404, id="another tenant"),
        pytest.param("x" * 300, 400, id="a tenant that cannot be read"),
        pytest.param(" ", 400, id="an empty one"),
    ],
)
async def test_a_request_is_shown_to_its_tenant(
    place: Place, tenant: str | None, status: int
) -> None:
    more = {} if tenant is None else {"x-evenkeel-tenant": tenant}
    async with place.client([KEY]) as client:
        answer = await client.get(
            "/why/chatcmpl-1", headers={"authorization": f"Bearer {KEY}"} | more
        )
    assert answer.status_code == status
    assert ("chatcmpl-1" in answer.text) == (status in (200, 404))
    if status == 200:
        assert answer.json()["request_id"] == "chatcmpl-1"


async def test_an_explanation_is_shown_as_the_exporter_made_it(place: Place) -> None:
    async with place.client([]) as client:
        found = (await client.get("/why/chatcmpl-1")).json()
    made = explain()
    # Tokens around a divergence are shown as text, and that only if the server is told to.
    for whose in ("own_tokens", "its_tokens"):
        del made["prefix_cache"]["diverged"][whose]
    assert found == made
    assert list(found["ledger"]) == list(made["ledger"])


async def test_control_and_the_cache_show_their_state(place: Place) -> None:
    async with place.client([]) as client:
        control = (await client.get("/control")).json()
        cache = (await client.get(CACHE)).json()
    names = "mode level limits burn capacity places inside waiting classes last_change"
    assert set(names.split()) <= set(control)
    assert control["kv_cache"]["waiting"] == 0
    assert control["limits"] == {"prefill_ratio": 1.0, "draft_ratio": 1.0}
    assert {"size", "indexed", "modes", "counts", "routes", "near_misses"} <= set(cache)
    assert cache["size"]["entries"] == cache["counts"]["stored"] == 1
    assert cache["modes"] == {"*": "serve"}


@pytest.mark.parametrize("path", ["/control", "/why/chatcmpl-1", CACHE])
async def test_a_part_that_is_not_there_is_named(place: Place, path: str) -> None:
    place.control, place.hook, place.cache = None, SimpleNamespace(), None  # type: ignore[assignment]
    async with place.client([KEY]) as client:
        answer = await client.get(path, headers=headers(f"Bearer {KEY}"))
    assert answer.status_code == 404
    assert "on this server" in answer.json()["detail"]


async def test_the_reference_needs_nothing_from_elsewhere(place: Place) -> None:
    async with place.client([KEY]) as client:
        page = await client.get("/v1/evenkeel/docs")
    assert page.headers["content-security-policy"].startswith(
        "default-src 'none'; style-src 'sha256-"
    )
    assert "http" not in page.text.replace("HTTPBearer", "") and "<script" not in page.text
    for address in ("/control", "/why/{request_id}", CACHE, "RequestExplanation"):
        assert address in page.text
