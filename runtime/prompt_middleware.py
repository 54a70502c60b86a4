"""ASGI middleware that puts a prompt of the registry into a chat request that names one.

`"prompt": "support@production"` in the body: the version's text becomes the system message, and the
spans carry the version. `x-evenkeel-prompt: support@production` says the same; with any other
selector, or where the request has a system message, the header only says which prompt was used.
"""

from __future__ import annotations

import json
import time
from collections.abc import MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel.prompts import LABELS, PromptRegistry, PromptVersion
from evenkeel.spans import HEADER_PROMPT
from runtime.arrival import App, Message, Receive, Send
from runtime.request_trace import CURRENT_REQUEST

PATH = "/v1/chat/completions"
# A label that moves is followed within this time; files are not read for every request.
FRESH_S = 1.0
MAX_KEPT = 256


class PromptMiddleware:
    """Resolves prompts; requests that name none pass untouched.

    vLLM builds it from its dotted name (`--middleware`), so the folder comes with vLLM's own
    parsed flags, as `evenkeel_prompts_dir`.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._kept: dict[str, tuple[float, PromptVersion]] = {}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Handle one connection."""
        folder = _find_folder(scope)
        if folder is None:
            await self._app(scope, receive, send)
            return
        body, messages = await _read(receive)
        wanted = _header(scope)
        if body is not None and (wanted is not None or b'"prompt"' in body):
            try:
                body = self._fill(body, wanted, PromptRegistry(folder))
            except ConfigurationError as error:
                await _refuse(send, str(error))
                return
            messages = [{"type": "http.request", "body": body, "more_body": False}]
        await self._app(_with_length(scope, messages), _replay(messages, receive), send)

    def _fill(self, body: bytes, wanted: str | None, registry: PromptRegistry) -> bytes:
        """Return the body with the text of the prompt that it or the header names.

        Raises:
            ConfigurationError: If the body names a prompt that is not there, or brings a system
                message of its own besides.
        """
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            return body
        if not isinstance(asked, dict) or not isinstance(asked.get("messages"), list):
            return body
        reference = asked.pop("prompt", None)
        has_system = any(
            isinstance(turn, dict) and turn.get("role") in ("system", "developer")
            for turn in asked["messages"]
        )
        if reference is None:
            return (
                body
                if wanted is None
                else self._fill_by_header(body, asked, wanted, registry, has_system)
            )
        if not isinstance(reference, str):
            raise ConfigurationError('prompt must be a text such as "support@production"')
        if has_system:
            raise ConfigurationError(
                f"the request names the prompt {reference[:100]!r} and brings a system message; "
                "send one of the two"
            )
        return _insert(asked, self._resolve(reference, registry))

    def _fill_by_header(
        self,
        body: bytes,
        asked: dict[str, Any],
        wanted: str,
        registry: PromptRegistry,
        has_system: bool,
    ) -> bytes:
        """Return what a header asks for; one that cannot be resolved never fails a request."""
        try:
            found = self._resolve(wanted, registry)
        except ConfigurationError:
            return body
        if has_system:
            _stamp(found)
            return body
        return _insert(asked, found)

    def _resolve(self, reference: str, registry: PromptRegistry) -> PromptVersion:
        now_s = time.monotonic()
        kept = self._kept.get(reference)
        if kept is not None and now_s - kept[0] < FRESH_S:
            return kept[1]
        found = registry.resolve(reference)
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[reference] = (now_s, found)
        return found


def _insert(asked: dict[str, Any], prompt: PromptVersion) -> bytes:
    _stamp(prompt)
    asked["messages"] = [{"role": "system", "content": prompt.system}, *asked["messages"]]
    body = json.dumps(asked).encode()
    request = CURRENT_REQUEST.get()
    if request is not None:
        request.body = bytearray(body)
    return body


def _stamp(prompt: PromptVersion) -> None:
    """Have the spans of this request carry the version."""
    request = CURRENT_REQUEST.get()
    if request is not None:
        request.caller = replace(
            request.caller, prompt_name=prompt.name, prompt_version=prompt.version
        )


def _find_folder(scope: MutableMapping[str, Any]) -> Path | None:
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    if scope["path"].removeprefix(scope.get("root_path", "")) != PATH:
        return None
    args = getattr(scope["app"].state, "args", None)
    return getattr(args, "evenkeel_prompts_dir", None)


def _header(scope: MutableMapping[str, Any]) -> str | None:
    """Return `name@label` of the header; None without one, or where it says a version."""
    for name, value in scope["headers"]:
        if name == HEADER_PROMPT.encode():
            text: str = value.decode("latin-1").strip()
            return text if text.rpartition("@")[2] in LABELS and "@" in text else None
    return None


async def _read(receive: Receive) -> tuple[bytes | None, list[Message]]:
    """Return the whole body, None if the client left before its end, and all that was received."""
    messages: list[Message] = []
    while True:
        message = await receive()
        messages.append(message)
        if message["type"] != "http.request":
            return None, messages
        if not message.get("more_body", False):
            return b"".join(m.get("body", b"") for m in messages), messages


def _replay(messages: list[Message], receive: Receive) -> Receive:
    waiting = iter(messages)

    async def replay() -> Message:
        message = next(waiting, None)
        return await receive() if message is None else message

    return replay


def _with_length(
    scope: MutableMapping[str, Any], messages: list[Message]
) -> MutableMapping[str, Any]:
    length = str(sum(len(m.get("body", b"")) for m in messages)).encode()
    headers = [(k, length if k == b"content-length" else v) for k, v in scope["headers"]]
    return {**scope, "headers": headers}


async def _refuse(send: Send, reason: str) -> None:
    error = {"message": reason, "type": "BadRequestError", "param": "prompt", "code": 400}
    body = json.dumps({"error": error}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})
