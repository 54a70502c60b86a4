"""A stub of OpenAI's and Anthropic's HTTP APIs: answers in their wire formats, without a model.

If a conversation offers a tool and has no result of one yet, the answer calls it; else it is text.
A model whose name contains "broken" answers 500, one whose name contains "busy" 429. An answer
that streams begins after 0.15 s and has a delta every 0.02 s.

    python tools/real_sdks/stub.py 8123
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FIRST_S, EACH_S = 0.15, 0.02
WORDS = ("It ", "took ", "the ", "usual ", "time.")
INPUT, CACHED, WRITTEN, OUTPUT, REASONING = 120, 80, 16, 24, 8
_numbers = itertools.count(1)
# What to call a tool with, by words in its name; others get an empty object.
ARGUMENTS = {
    "bash": {"command": "echo hello", "description": "Say hello"},
    "exec_command": {"cmd": "echo hello"},
    "shell": {"command": ["bash", "-lc", "echo hello"]},
    "weather": {"city": "Paris"},
}
PREFERRED = ("bash", "exec_command", "shell", "weather")


def pick_tool(tools: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | None:
    """Return the name and arguments of the tool to call, None if none is known."""
    names = [tool.get("name") or tool.get("function", {}).get("name") or "" for tool in tools]
    for word in PREFERRED:
        for name in names:
            if word in name.lower():
                return name, ARGUMENTS[word]
    return None


def _events(frames: list[tuple[str, dict[str, Any]]], is_named: bool) -> Iterator[bytes]:
    time.sleep(FIRST_S)
    for name, data in frames:
        time.sleep(EACH_S if "delta" in name else 0)
        head = f"event: {name}\n" if is_named else ""
        yield f"{head}data: {json.dumps(data)}\n\n".encode()


def messages(body: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    """Return Anthropic's answer and the events of its stream."""
    last = body["messages"][-1]["content"]
    has_result = isinstance(last, list) and any(b.get("type") == "tool_result" for b in last)
    tool = None if has_result else pick_tool(body.get("tools") or [])
    number = next(_numbers)
    usage = {
        "input_tokens": INPUT - CACHED - WRITTEN,
        "cache_read_input_tokens": CACHED,
        "cache_creation_input_tokens": WRITTEN,
        "output_tokens": OUTPUT,
    }
    if tool:
        block = {"type": "tool_use", "id": f"toolu_{number:04}", "name": tool[0], "input": tool[1]}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(tool[1])}]
        start = {**block, "input": {}}
    else:
        block = {"type": "text", "text": "".join(WORDS)}
        deltas = [{"type": "text_delta", "text": word} for word in WORDS]
        start = {"type": "text", "text": ""}
    answer = {
        "id": f"msg_{number:04}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [block],
        "stop_reason": "tool_use" if tool else "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }
    begun = {**answer, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    frames = [
        ("message_start", {"message": begun}),
        ("content_block_start", {"index": 0, "content_block": start}),
        *(("content_block_delta", {"index": 0, "delta": delta}) for delta in deltas),
        ("content_block_stop", {"index": 0}),
        (
            "message_delta",
            {
                "delta": {"stop_reason": answer["stop_reason"], "stop_sequence": None},
                "usage": usage,
            },
        ),
        ("message_stop", {}),
    ]
    return answer, [(name, {"type": name, **data}) for name, data in frames]


def responses(body: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    """Return the answer of OpenAI's Responses API and the events of its stream."""
    asked = body.get("input")
    items = asked if isinstance(asked, list) else []
    has_result = any("call_output" in str(item.get("type")) for item in items)
    tool = None if has_result else pick_tool(body.get("tools") or [])
    number = next(_numbers)
    if tool:
        arguments = json.dumps(tool[1])
        item: dict[str, Any] = {
            "type": "function_call", "id": f"fc_{number:04}", "call_id": f"call_{number:04}",
            "name": tool[0], "arguments": arguments, "status": "completed",
        }  # fmt: skip
        deltas = [("response.function_call_arguments.delta", arguments)]
        begun = {**item, "arguments": "", "status": "in_progress"}
    else:
        item = {
            "type": "message", "id": f"msg_{number:04}", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "".join(WORDS), "annotations": []}],
        }  # fmt: skip
        deltas = [("response.output_text.delta", word) for word in WORDS]
        begun = {**item, "content": [], "status": "in_progress"}
    answer = {
        "id": f"resp_{number:04}", "object": "response", "created_at": int(time.time()),
        "status": "completed", "model": body["model"], "output": [item], "error": None,
        "incomplete_details": None, "instructions": None, "metadata": {}, "tools": [],
        "tool_choice": "auto", "parallel_tool_calls": True, "temperature": 1.0, "top_p": 1.0,
        "usage": {
            "input_tokens": INPUT, "input_tokens_details": {"cached_tokens": CACHED},
            "output_tokens": OUTPUT, "output_tokens_details": {"reasoning_tokens": REASONING},
            "total_tokens": INPUT + OUTPUT,
        },
    }  # fmt: skip
    empty = {**answer, "status": "in_progress", "output": [], "usage": None}
    place = {"output_index": 0, "item_id": item["id"], "content_index": 0}
    frames = [
        ("response.created", {"response": empty}),
        ("response.output_item.added", {"output_index": 0, "item": begun}),
        *((name, {**place, "delta": delta}) for name, delta in deltas),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": answer}),
    ]
    return answer, [
        (name, {"type": name, "sequence_number": place, **data})
        for place, (name, data) in enumerate(frames)
    ]


def completions(body: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    """Return OpenAI's chat completion and the chunks of its stream."""
    has_result = any(message.get("role") == "tool" for message in body["messages"])
    tool = None if has_result else pick_tool(body.get("tools") or [])
    number = next(_numbers)
    if tool:
        called = {"name": tool[0], "arguments": json.dumps(tool[1])}
        call = {"id": f"call_{number:04}", "type": "function", "function": called}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        deltas = [{"tool_calls": [{"index": 0, **call}]}]
    else:
        message = {"role": "assistant", "content": "".join(WORDS)}
        deltas = [{"content": word} for word in WORDS]
    usage = {
        "prompt_tokens": INPUT,
        "completion_tokens": OUTPUT,
        "total_tokens": INPUT + OUTPUT,
        "prompt_tokens_details": {"cached_tokens": CACHED},
        "completion_tokens_details": {"reasoning_tokens": REASONING},
    }
    head = {"id": f"chatcmpl-{number:04}", "created": int(time.time()), "model": body["model"]}
    reason = "tool_calls" if tool else "stop"
    answer = {
        **head,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": usage,
    }
    head["object"] = "chat.completion.chunk"
    steps: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *deltas]
    frames = [
        ("delta", {**head, "choices": [{"index": 0, "delta": d, "finish_reason": None}]})
        for d in steps
    ]
    frames.append(
        ("end", {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    )
    if (body.get("stream_options") or {}).get("include_usage"):
        frames.append(("end", {**head, "choices": [], "usage": usage}))
    return answer, frames


def embeddings(body: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    """Return OpenAI's answer with one embedding."""
    data = [{"object": "embedding", "index": 0, "embedding": [0.1, 0.2, 0.3]}]
    usage = {"prompt_tokens": 6, "total_tokens": 6}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}, []


ANSWERS = {
    "/v1/messages": messages,
    "/v1/responses": responses,
    "/v1/chat/completions": completions,
    "/v1/embeddings": embeddings,
}


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a GET request."""
        self._send(200, {"object": "list", "data": [], "models": []})

    def do_HEAD(self) -> None:
        """Answer a HEAD request."""
        self._send(200, {})

    def do_POST(self) -> None:
        """Answer a POST request."""
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        path = self.path.split("?")[0]
        model = str(body.get("model"))
        if path == "/v1/messages/count_tokens":
            self._send(200, {"input_tokens": INPUT})
        elif path not in ANSWERS:
            self._send(404, {"error": {"type": "not_found_error", "message": path}})
        elif "broken" in model or "busy" in model:
            status = 500 if "broken" in model else 429
            error = {"type": "api_error", "message": "the stub says no", "code": None}
            self._send(status, {"type": "error", "error": error})
        else:
            answer, frames = ANSWERS[path](body)
            if body.get("stream"):
                self._stream(frames, is_done_said=path == "/v1/chat/completions")
            else:
                time.sleep(FIRST_S)
                self._send(200, answer)

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("request-id", f"req_{next(_numbers):04}")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _stream(self, frames: list[tuple[str, dict[str, Any]]], *, is_done_said: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("request-id", f"req_{next(_numbers):04}")
        self.send_header("connection", "close")
        self.end_headers()
        for data in _events(frames, is_named=not is_done_said):
            self.wfile.write(data)
            self.wfile.flush()
        if is_done_said:
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Write the request and its headers to standard error."""
        heads = {k: v for k, v in self.headers.items() if k.lower() not in ("authorization",)}
        print(format % args, json.dumps(heads), file=sys.stderr, flush=True)


def main() -> None:
    """Serve on a port of the loopback address."""
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    server.serve_forever()


if __name__ == "__main__":
    main()
