"""The streaming client against a server that is slow, broken, or lies."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from evenkeel import spans
from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel_evals.ask.client import Call, ChatClient, Reply
from evenkeel_evals.ask.sides import Side

Behaviour = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def event(payload: object) -> bytes:
    return f"data: {json.dumps(payload)}\n\n".encode()


TOKEN = event({"choices": [{"delta": {"content": "word "}}]})
END = (
    event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    + event({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 3}})
    + b"data: [DONE]\n\n"
)


@asynccontextmanager
async def serving(behaviour: Behaviour) -> AsyncIterator[str]:
    """Serve one behaviour: it gets the request and writes what it likes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = [h for h in head.lower().split(b"\r\n") if h.startswith(b"content-length:")]
        body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
        try:
            await behaviour(head + body, writer)
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def call(url: str, salt: str | None = None) -> Call:
    side = Side("s", url, "m", "support", "2", None, {"max_tokens": 5})
    return Call(side, [{"role": "user", "content": "?"}], "a" * 32, "b" * 16, "r-A", salt)


async def ask(behaviour: Behaviour, timeout_s: float = 120.0) -> Reply:
    async with serving(behaviour) as url, ChatClient(1, timeout_s) as client:
        return await client.ask(call(url))


async def test_times_are_those_of_the_tokens() -> None:
    async def behaviour(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + event({"choices": [{"delta": {"role": "assistant", "content": ""}}]}))
        await writer.drain()
        for _i in range(3):
            await asyncio.sleep(0.1)
            writer.write(TOKEN)
            await writer.drain()
        await asyncio.sleep(0.1)
        writer.write(END)

    reply = await ask(behaviour)
    assert reply.text == "word word word "
    # Not less than the server waited; how much more is the machine's. Of the tokens, not of the
    # event before the first and not of the end.
    assert reply.ttft_s is not None and reply.e2e_s is not None and reply.tpot_s is not None
    assert reply.ttft_s > 0.09
    assert reply.e2e_s > 0.29
    assert reply.tpot_s == pytest.approx((reply.e2e_s - reply.ttft_s) / 2)
    assert (reply.input_tokens, reply.output_tokens, reply.finish_reason) == (4, 3, "stop")
    assert reply.ttft_s < reply.e2e_s < (reply.end_ns - reply.start_ns) / 1e9


async def test_the_server_is_told_who_asks() -> None:
    seen: list[bytes] = []

    async def behaviour(request: bytes, writer: asyncio.StreamWriter) -> None:
        seen.append(request)
        writer.write(HEAD + TOKEN + END)

    async with serving(behaviour) as url, ChatClient(1, 120.0) as client:
        await client.ask(call(url, salt="r-A"))
        await client.ask(call(url))
    head, body = seen[0].split(b"\r\n\r\n", 1)
    headers = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:])
    assert headers[b"traceparent"] == b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
    assert headers[spans.HEADER_PROMPT.encode()] == b"support@2"
    assert headers[spans.HEADER_SESSION.encode()] == b"r-a"
    assert headers[spans.HEADER_ROUTE.encode()] == b"eval"
    assert spans.HEADER_SLO_CLASS.encode() not in headers
    payload = json.loads(body)
    assert payload["cache_salt"] == "r-A"
    assert (payload["model"], payload["max_tokens"], payload["stream"]) == ("m", 5, True)
    assert "cache_salt" not in json.loads(seen[1].split(b"\r\n\r\n", 1)[1])


async def test_requests_name_the_slo_class_that_the_client_has() -> None:
    seen: list[bytes] = []

    async def behaviour(request: bytes, writer: asyncio.StreamWriter) -> None:
        seen.append(request.lower())
        writer.write(HEAD + TOKEN + END)

    async with serving(behaviour) as url, ChatClient(1, 120.0, slo_class="batch") as client:
        await client.ask(call(url))
    assert f"{spans.HEADER_SLO_CLASS}: batch\r\n".encode() in seen[0]


def answering(status: str, body: bytes) -> Behaviour:
    async def behaviour(_: bytes, writer: asyncio.StreamWriter) -> None:
        length = str(len(body)).encode()
        writer.write(
            b"HTTP/1.1 " + status.encode() + b"\r\nContent-Length: " + length + b"\r\n\r\n" + body
        )

    return behaviour


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        ("500 Oops", b'{"error": {"message": "out of memory\\nstack"}}', "HTTP 500: out of memory"),
        ("404 No", b'{"detail": "Not Found"}', "HTTP 404: Not Found"),
        ("429 Slow", b"slow down", "HTTP 429: slow down"),
        ("503 Busy", b"", "HTTP 503: no explanation"),
    ],
)
async def test_a_refusal_is_an_error_with_its_reason(status: str, body: bytes, error: str) -> None:
    reply = await ask(answering(status, body))
    assert (reply.text, reply.error) == (None, error)


async def test_a_stream_that_breaks_off_is_no_answer() -> None:
    async def behaviour(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + TOKEN)

    reply = await ask(behaviour)
    assert reply.text is None
    assert reply.error == "the stream ended before the answer was complete"


async def test_a_chunk_that_is_cut_is_no_answer() -> None:
    async def behaviour(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\ndata: {")

    reply = await ask(behaviour)
    assert reply.text is None
    assert reply.error is not None and "RemoteProtocolError" in reply.error


async def test_a_server_that_never_ends_is_timed_out() -> None:
    async def behaviour(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        while True:
            writer.write(TOKEN)
            await writer.drain()
            await asyncio.sleep(0.05)

    reply = await ask(behaviour, timeout_s=4.0)
    assert reply.error == "no complete answer within 4 s"
    assert (reply.has_timed_out, reply.e2e_s) == (True, 4.0)
    # Of the tokens that came: what waited on the way comes faster than it was sent.
    assert reply.tpot_s is not None and 0.01 <= reply.tpot_s <= 4.0


async def test_a_connection_survives_an_error_for_the_next_call() -> None:
    turns = iter([False, True])

    async def behaviour(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + TOKEN + (END if next(turns) else b""))

    async with serving(behaviour) as url, ChatClient(1, 120.0) as client:
        first, second = await client.ask(call(url)), await client.ask(call(url))
    assert first.error is not None
    assert second.text == "word "


async def test_no_more_calls_are_in_flight_than_allowed() -> None:
    running, most = 0, 0
    are_all_here = asyncio.Event()

    async def behaviour(_: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            are_all_here.set()
        await are_all_here.wait()
        # Time for a fourth, if there were one.
        await asyncio.sleep(0.05)
        running -= 1
        writer.write(HEAD + TOKEN + END)

    async with serving(behaviour) as url, ChatClient(3, 120.0) as client:
        replies = await asyncio.gather(*(client.ask(call(url)) for _ in range(12)))
    assert most == 3
    assert all(reply.text == "word " for reply in replies)


async def test_models_are_looked_up() -> None:
    served = answering("200 OK", b'{"data": [{"id": "one"}, {"id": "two"}]}')
    async with serving(served) as url, ChatClient(1, 120.0) as client:
        assert await client.find_model(url, None) == "one"
    async with serving(served) as url, ChatClient(1, 120.0) as client:
        with pytest.raises(ConfigurationError, match=r"does not serve the model 'three'.*one, two"):
            await client.find_model(url, "three")


async def test_a_server_that_is_not_there_or_not_one_cannot_be_measured() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        async with ChatClient(1, 120.0) as client:
            with pytest.raises(CannotMeasureError, match="wait until it is ready"):
                await client.find_model(url, None)
            reply = await client.ask(call(url))
    assert reply.error is not None and reply.error.startswith("ConnectError")
    for behaviour, why in (
        (answering("404 No", b""), "answered 404; is it an OpenAI server"),
        (answering("401 No", b""), "answered 401; give its key in EVENKEEL_EVAL_API_KEY"),
        (answering("200 OK", b"<html>"), "did not return a list of models"),
        (answering("200 OK", b"[" * 100_000), "did not return a list of models"),
    ):
        async with serving(behaviour) as url, ChatClient(1, 120.0) as client:
            with pytest.raises(CannotMeasureError, match=why) as refused:
                await client.find_model(url.replace("//", "//me:hunter2@"), None)
        assert "hunter2" not in str(refused.value)
