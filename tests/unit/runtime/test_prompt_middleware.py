"""Chat requests that name a prompt of the registry get its text, and their spans its version."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evenkeel.prompts import Move, PromptRegistry, PromptVersion, digest
from runtime import prompt_middleware
from runtime.caller import Caller
from runtime.prompt_middleware import PromptMiddleware
from runtime.request_trace import CURRENT_REQUEST, HttpRequest

FIRST, SECOND = "Be brief.", "Be kind."


@pytest.fixture
def registry(tmp_path: Path) -> PromptRegistry:
    found = PromptRegistry(tmp_path)
    (tmp_path / "support.toml").write_text(f'system = "{SECOND}"\n')
    promote(found, FIRST)
    return found


def promote(registry: PromptRegistry, text: str) -> None:
    registry.keep(PromptVersion("support", digest(text), text))
    registry.move("support", Move(1, "production", digest(text), "test", None))


class Exchange:
    """One request through the middleware; `body` is what the app was given."""

    def __init__(self, folder: Path, middleware: PromptMiddleware | None = None) -> None:
        self.folder = folder
        self.body: bytes | None = None
        self.length: bytes | None = None
        self.sent: list[Any] = []
        self.request = HttpRequest("chat", Caller())
        self.middleware = middleware or PromptMiddleware(self.app)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        chunks = []
        while (message := await receive())["type"] == "http.request":
            chunks.append(message.get("body", b""))
            if not message.get("more_body"):
                break
        self.body = b"".join(chunks)
        self.length = dict(scope["headers"]).get(b"content-length")

    async def ask(self, asked: object, header: str | None = None, path: str = "") -> "Exchange":
        body = json.dumps(asked).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        if header is not None:
            headers.append((b"x-evenkeel-prompt", header.encode()))
        scope = {
            "type": "http",
            "method": "POST",
            "path": path or "/v1/chat/completions",
            "headers": headers,
            "app": SimpleNamespace(
                state=SimpleNamespace(args=SimpleNamespace(evenkeel_prompts_dir=self.folder))
            ),
        }
        incoming = [
            {"type": "http.request", "body": body[:9], "more_body": True},
            {"type": "http.request", "body": body[9:]},
            {"type": "http.disconnect"},
        ]

        async def receive() -> Any:
            return incoming.pop(0)

        async def send(message: Any) -> None:
            self.sent.append(message)

        token = CURRENT_REQUEST.set(self.request)
        try:
            await self.middleware(scope, receive, send)
        finally:
            CURRENT_REQUEST.reset(token)
        return self

    @property
    def stamped(self) -> tuple[str | None, str | None]:
        return self.request.caller.prompt_name, self.request.caller.prompt_version


USER = {"role": "user", "content": "hello"}


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        pytest.param("support@production", FIRST, id="by label"),
        pytest.param("support", FIRST, id="production unless said"),
        pytest.param("support@draft", SECOND, id="the draft"),
        pytest.param(f"support@{digest(FIRST)}", FIRST, id="by version"),
    ],
)
async def test_a_body_that_names_a_prompt_gets_its_text(
    registry: PromptRegistry, tmp_path: Path, reference: str, text: str
) -> None:
    done = await Exchange(tmp_path).ask({"model": "m", "prompt": reference, "messages": [USER]})
    assert done.body is not None
    assert json.loads(done.body) == {
        "model": "m",
        "messages": [{"role": "system", "content": text}, USER],
    }
    assert done.length == str(len(done.body)).encode()
    assert done.stamped == ("support", digest(text))


async def test_a_header_with_a_label_does_the_same(
    registry: PromptRegistry, tmp_path: Path
) -> None:
    done = await Exchange(tmp_path).ask({"messages": [USER]}, "support@production")
    assert json.loads(done.body or b"")["messages"][0]["content"] == FIRST
    assert done.stamped == ("support", digest(FIRST))


async def test_a_header_beside_a_system_message_only_says_the_version(
    registry: PromptRegistry, tmp_path: Path
) -> None:
    asked = {"messages": [{"role": "system", "content": "mine"}, USER]}
    done = await Exchange(tmp_path).ask(asked, "support@production")
    assert json.loads(done.body or b"") == asked
    assert done.stamped == ("support", digest(FIRST))


@pytest.mark.parametrize("header", ["support@2", "support@0123456789ab", "other@production", "x"])
async def test_headers_that_name_no_label_here_pass_untouched(
    registry: PromptRegistry, tmp_path: Path, header: str
) -> None:
    asked = {"messages": [USER]}
    done = await Exchange(tmp_path).ask(asked, header)
    assert json.loads(done.body or b"") == asked
    assert done.stamped == (None, None)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        pytest.param({"prompt": "other", "messages": [USER]}, "other", id="unknown prompt"),
        pytest.param({"prompt": "support@canary", "messages": [USER]}, "canary", id="no label"),
        pytest.param({"prompt": 3, "messages": [USER]}, "must be a text", id="no text"),
        pytest.param({"prompt": "../x", "messages": [USER]}, "no name", id="no name"),
        pytest.param(
            {"prompt": "support", "messages": [{"role": "system", "content": "x"}]},
            "system message",
            id="two system messages",
        ),
    ],
)
async def test_what_cannot_be_resolved_is_refused(
    registry: PromptRegistry, tmp_path: Path, asked: object, reason: str
) -> None:
    done = await Exchange(tmp_path).ask(asked)
    assert done.body is None
    assert done.sent[0]["status"] == 400
    assert reason in json.loads(done.sent[1]["body"])["error"]["message"]


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        pytest.param({"prompt": "Once upon", "max_tokens": 3}, "/v1/completions", id="completions"),
        pytest.param({"prompt": "no messages"}, "", id="no messages"),
        pytest.param(["prompt"], "", id="no object"),
        pytest.param({"messages": [{"role": "user", "content": '"prompt"'}]}, "", id="quoted"),
    ],
)
async def test_other_requests_pass_untouched(
    registry: PromptRegistry, tmp_path: Path, asked: object, path: str
) -> None:
    done = await Exchange(tmp_path).ask(asked, path=path)
    assert (json.loads(done.body or b""), done.sent) == (asked, [])


async def test_a_label_that_moves_is_followed(registry: PromptRegistry, tmp_path: Path) -> None:
    done = Exchange(tmp_path)
    asked = {"prompt": "support", "messages": [USER]}
    await done.ask(asked)
    promote(registry, SECOND)
    give_up = time.monotonic() + 10 * prompt_middleware.FRESH_S
    while done.stamped[1] != digest(SECOND):
        assert time.monotonic() < give_up
        await done.ask(asked)
    assert json.loads(done.body or b"")["messages"][0]["content"] == SECOND
