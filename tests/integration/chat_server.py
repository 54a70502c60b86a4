"""A chat server for kill tests: writes down every question it answered, one line each."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

MODELS = json.dumps({"data": [{"id": "m"}]}).encode()


def event(payload: object) -> bytes:
    return f"data: {json.dumps(payload)}\n\n".encode()


def answer(question: str, system: str) -> str:
    """Answer with the question itself; «worse» spoils every third, «shout» changes all."""
    if "compare two answers" in system:
        # A judge that sees «no idea» for what it is, and likes the first place otherwise.
        return "2" if "Answer 1:\nno idea" in question else "1"
    if "against one criterion" in system:
        return "no" if "no idea" in question else "yes"
    if "check one answer" in system:
        return "bad" if "no idea" in question else "good"
    is_spoilt = system == "worse" and int(question.split()[-1]) % 3 == 0
    if system == "breaks seven" and question == "say 7":
        return "no idea"
    if system == "shout":
        question = question.upper()
    return "no idea" if is_spoilt else question


def spoken(text: str, is_streamed: bool) -> tuple[bytes, bytes]:
    """Return the media type and body of an answer."""
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    if not is_streamed:
        message = {"role": "assistant", "content": text}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return b"application/json", json.dumps({"choices": choices, "usage": usage}).encode()
    body = (
        event({"choices": [{"delta": {"content": text}}]})
        + event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        + event({"choices": [], "usage": usage})
        + b"data: [DONE]\n\n"
    )
    return b"text/event-stream", body


class Server:
    def __init__(self, log: Path, delay_s: float) -> None:
        self._log = log.open("a", encoding="utf-8")
        self._delay_s = delay_s

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET"):
                    found = MODELS if b"/v1/models" in head else b'{"version": "test-1"}'
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(found))
                    writer.write(found)
                    continue
                fields = head.lower().split(b"\r\n")
                length = next(f for f in fields if f.startswith(b"content-length:")).split(b":")[1]
                body = json.loads(await reader.readexactly(int(length)))
                await asyncio.sleep(self._delay_s)
                turns = {turn["role"]: turn["content"] for turn in body["messages"]}
                text = answer(turns["user"], turns.get("system", ""))
                media, reply = spoken(text, body.get("stream", False))
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n"
                    b"Content-Length: %d\r\n\r\n" % (media, len(reply))
                )
                writer.write(reply)
                await writer.drain()
                line = f"{turns.get('system', '')}|{turns['user']}".replace("\n", " ")
                self._log.write(f"{line}\n")
                self._log.flush()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def main() -> None:
    server = Server(Path(sys.argv[1]), float(sys.argv[2]))
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
