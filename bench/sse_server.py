"""A chat server that streams 20 chunks at once; prints its port. For measuring clients only."""

import asyncio
import json


def body() -> bytes:
    chunk = {"choices": [{"index": 0, "delta": {"content": "word "}}]}
    events = [f"data: {json.dumps(chunk)}\n\n" for _ in range(20)]
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 20}}
    events += [f"data: {json.dumps(event)}\n\n" for event in (last, usage)]
    parts = [event.encode() for event in [*events, "data: [DONE]\n\n"]]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    + body()
)


async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next(
                int(li.split(b":")[1]) for li in lines if li.startswith(b"content-length")
            )
            await reader.readexactly(length)
            writer.write(ANSWER)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
