"""Responses of the collector's two HTTP ports."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from evenkeel_collector.ports.body import Receive, Response, Scope, answer_http


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("0190-ab", b"0190-ab"),
        ("größe", "größe".encode("latin-1")),
        ("日報 7", b"?? 7"),
        ("a\r\nset-cookie: b", b"a??set-cookie: b"),
    ],
    ids=["ASCII", "Latin-1", "other characters", "a line break"],
)
def test_a_header_that_repeats_what_a_client_sent_is_one_header(value: str, sent: bytes) -> None:
    messages: list[MutableMapping[str, Any]] = []

    async def answer(scope: Scope, receive: Receive) -> Response:
        return Response(200, b"1\n", headers={"x-clickhouse-query-id": value})

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        messages.append(message)

    asyncio.run(answer_http(answer, {"type": "http", "method": "GET", "path": "/"}, receive, send))
    assert [message["type"] for message in messages] == [
        "http.response.start", "http.response.body",
    ]  # fmt: skip
    assert dict(messages[0]["headers"])[b"x-clickhouse-query-id"] == sent
