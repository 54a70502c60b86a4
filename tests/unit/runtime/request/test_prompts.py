"""Chat requests that name a prompt of the registry get its text, and their spans its version."""

import asyncio
import json
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evenkeel.prompts.registry import Move, PromptRegistry, PromptVersion, digest
from evenkeel_runtime.request.prompts import PromptMiddleware
from evenkeel_runtime.request.trace import CURRENT_REQUEST, HttpRequest
from evenkeel_runtime.wire.caller import Caller

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
        self.sent: list[Any] = []
        self.incoming: list[Any] = []
        self.is_late = self.leaves = False
        self.request = HttpRequest("chat", Caller())
        self.middleware = middleware or PromptMiddleware(self.app)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        chunks = []
        while (message := await receive())["type"] == "http.request":
            chunks.append(message.get("body", b""))
            if not message.get("more_body"):
                break
        self.body = b"".join(chunks)

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
        self.incoming = [
            {"type": "http.request", "body": body[:9], "more_body": True},
            {"type": "http.request", "body": body[9:]},
            {"type": "http.disconnect"},
        ]
        if self.leaves:
            del self.incoming[1]

        async def receive() -> Any:
            while self.is_late and len(self.incoming) == 2:
                await asyncio.sleep(0.001)
            return self.incoming.pop(0)

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
    assert list(done.request.holds) == ["host.prompt"]
    assert done.request.hold_starts_ns["host.prompt"] >= done.request.arrival_ns
    assert json.loads(done.body) == {
        "model": "m",
        "messages": [{"role": "system", "content": text}, USER],
    }
    assert done.stamped == ("support", digest(text))


async def test_a_header_with_a_label_does_the_same(
    registry: PromptRegistry, tmp_path: Path
) -> None:
    done = await Exchange(tmp_path).ask({"messages": [USER]}, "support@production")
    assert json.loads(done.body or b"")["messages"][0]["content"] == FIRST
    assert done.stamped == ("support", digest(FIRST))


@pytest.mark.parametrize("header", [None, "support@production"], ids=["body", "header"])
@pytest.mark.parametrize("role", ["system", "developer"])
async def test_beside_a_system_message_only_the_version_is_noted(
    registry: PromptRegistry, tmp_path: Path, header: str | None, role: str
) -> None:
    asked: dict[str, object] = {"messages": [{"role": role, "content": "mine"}, USER]}
    if header is None:
        asked["prompt"] = "support@production"
    done = await Exchange(tmp_path).ask(asked, header)
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
    "prompt",
    [
        pytest.param("Once upon a time", id="a text"),
        pytest.param("other", id="no prompt of the registry"),
        pytest.param("support@canary", id="no label"),
        pytest.param("support@0123456789ab", id="no version"),
        pytest.param("@production", id="no name"),
        pytest.param("", id="empty"),
        pytest.param("../x", id="a path"),
        pytest.param("support\0", id="a zero byte"),
        pytest.param("\ud800", id="a lone surrogate"),
        pytest.param("a" * 256, id="longer than a file's name"),
        pytest.param("support" * 1000, id="long"),
        pytest.param(None, id="null"),
        pytest.param(3, id="a number"),
        pytest.param(True, id="a boolean"),
        pytest.param(["support"], id="a list"),
        pytest.param([1, 2, 3], id="tokens"),
        pytest.param({"name": "support"}, id="an object"),
    ],
)
@pytest.mark.parametrize("system", [False, True], ids=["without system", "with system"])
async def test_what_names_no_prompt_is_vllms_to_ignore(
    registry: PromptRegistry, tmp_path: Path, prompt: object, system: bool
) -> None:
    messages = [{"role": "system", "content": "x"}, USER] if system else [USER]
    asked = {"prompt": prompt, "messages": messages}
    done = await Exchange(tmp_path).ask(asked)
    assert (json.loads(done.body or b""), done.sent) == (asked, [])
    assert done.stamped == (None, None)


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([], id="none"),
        pytest.param([None, 3, "x", [USER]], id="no objects"),
        pytest.param([{"role": ["system"]}], id="a role that is no text"),
        pytest.param([{"role": "user", "content": [{"type": "text", "text": "x"}]}], id="parts"),
        pytest.param([{"role": "user", "content": "\ud800", "name": None}], id="a lone surrogate"),
        pytest.param([{"role": "user", "content": float("nan")}], id="not a number"),
    ],
)
async def test_messages_of_any_shape_are_passed_on_behind_the_prompt(
    registry: PromptRegistry, tmp_path: Path, messages: list[object]
) -> None:
    extra = {"model": 3, "stream": "yes", "stream_options": [], "unknown": {"deep": None}}
    asked = {"prompt": "support", "messages": messages} | extra
    done = await Exchange(tmp_path).ask(asked)
    system = {"role": "system", "content": FIRST}
    wanted = json.dumps({"messages": [system, *messages]} | extra, sort_keys=True)
    assert json.dumps(json.loads(done.body or b""), sort_keys=True) == wanted
    assert done.sent == []


async def test_a_wrong_label_of_a_known_prompt_is_logged_once(
    registry: PromptRegistry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done = Exchange(tmp_path)
    with caplog.at_level(logging.WARNING, "evenkeel_runtime.request.prompts"):
        for prompt in ("support@canary", "my secret question", "support@canary"):
            done.middleware._kept.clear()
            await done.ask({"prompt": prompt, "messages": [USER]})
    (record,) = caplog.records
    assert "prompt 'support' has no 'canary'" in record.getMessage()


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


@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param("labels/support.json", "<<<<<<< HEAD", id="a conflict in a label"),
        pytest.param("labels/support.json", None, id="no label yet"),
        pytest.param(f"versions/support/{digest(FIRST)}.toml", None, id="no version yet"),
        pytest.param(f"versions/support/{digest(FIRST)}.toml", "system", id="half a version"),
    ],
)
async def test_a_registry_that_is_being_written_takes_no_chat_its_prompt(
    file: str,
    text: str | None,
    registry: PromptRegistry,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    done = Exchange(tmp_path)
    asked = {"prompt": "support@production", "messages": [USER]}
    await done.ask(asked)
    whole = (tmp_path / file).read_text()
    (tmp_path / file).unlink() if text is None else (tmp_path / file).write_text(text)
    with caplog.at_level(logging.WARNING, "evenkeel_runtime.request.prompts"):
        for _ in range(3):
            done.middleware._kept.clear()
            await done.ask(asked)
            assert json.loads(done.body or b"")["messages"][0]["content"] == FIRST
            assert done.stamped == ("support", digest(FIRST))
    (record,) = caplog.records
    assert f"still serving support@production as version {digest(FIRST)}" in record.getMessage()
    (tmp_path / file).write_text(whole)
    promote(registry, SECOND)
    done.middleware._kept.clear()
    await done.ask(asked)
    assert done.stamped == ("support", digest(SECOND))


async def test_a_label_that_moves_is_followed(registry: PromptRegistry, tmp_path: Path) -> None:
    done = Exchange(tmp_path)
    asked = {"prompt": "support", "messages": [USER]}
    await done.ask(asked)
    promote(registry, SECOND)
    give_up = time.monotonic() + 120
    while done.stamped[1] != digest(SECOND):
        assert time.monotonic() < give_up
        await done.ask(asked)
    assert json.loads(done.body or b"")["messages"][0]["content"] == SECOND


async def test_a_conversation_stays_the_same_while_its_label_moves(
    registry: PromptRegistry, tmp_path: Path
) -> None:
    asked = {"prompt": "support", "messages": [USER]}
    done = await Exchange(tmp_path).ask(asked)
    assert done.request.body == done.body
    # Sessions are found by what the client sent.
    assert done.request.sent == json.dumps(asked).encode()
    passed = await Exchange(tmp_path).ask({"messages": [USER]})
    assert passed.request.sent is None


async def test_nothing_is_read_for_a_caller_whom_the_app_refuses_by_its_head(
    registry: PromptRegistry, tmp_path: Path
) -> None:
    # As vLLM does without an API key, whatever the size of the body.
    class Refusing(Exchange):
        async def app(self, scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 401})
            await send({"type": "http.response.body", "body": b""})

    done = await Refusing(tmp_path).ask({"prompt": "support", "messages": [USER]})
    assert (len(done.incoming), len(done.sent)) == (3, 2)


async def test_reads_that_are_cancelled_lose_nothing_of_the_body(
    registry: PromptRegistry, tmp_path: Path
) -> None:
    class Impatient(Exchange):
        async def app(self, scope: Any, receive: Any, send: Any) -> None:
            for _ in range(3):
                # The second part of the body is late.
                reading = asyncio.ensure_future(receive())
                await asyncio.wait((reading,), timeout=0.01)
                reading.cancel()
            self.is_late = False
            await super().app(scope, receive, send)

    done = Impatient(tmp_path)
    done.is_late = True
    await done.ask({"prompt": "support", "messages": [USER]})
    assert json.loads(done.body or b"")["messages"][0]["content"] == FIRST


async def test_a_client_that_leaves_amid_its_body_is_gone_for_the_app_too(
    registry: PromptRegistry, tmp_path: Path
) -> None:
    done = Exchange(tmp_path)
    done.leaves = True
    await done.ask({"prompt": "support", "messages": [USER]})
    assert (done.body, done.stamped) == (b"", (None, None))
