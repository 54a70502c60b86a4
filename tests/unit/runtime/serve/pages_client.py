"""A client of our own pages, before an app that knows nothing."""

from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import httpx

from evenkeel_runtime.serve.own_pages import OwnPagesMiddleware

KEY = "secret"


async def _answer_nothing(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b"vLLM's own"})


def make_client(**parts: Any) -> httpx.AsyncClient:
    """Return a client with the key of a server whose engine client has these parts."""
    state = SimpleNamespace(engine_client=SimpleNamespace(**parts), args=Namespace(api_key=[KEY]))
    pages = OwnPagesMiddleware(_answer_nothing)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await pages({**scope, "app": SimpleNamespace(state=state)}, receive, send)

    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app),
        base_url="http://server",
        headers={"authorization": f"Bearer {KEY}"},
    )
