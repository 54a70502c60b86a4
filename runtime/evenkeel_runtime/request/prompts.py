"""ASGI middleware that inserts a registry prompt into chat requests that reference one.

With `"prompt": "support@production"` in the body, the version's text becomes the system message and
the spans carry the version. The header `x-evenkeel-prompt: support@production` does the same; with
any other selector it only records which prompt was used. If the request has its own system message,
both only record the version. vLLM ignores a chat's `prompt`, so no request is refused here: one
that references no registry prompt passes unchanged.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Send

from evenkeel.errors import ConfigurationError
from evenkeel.prompts.registry import LABELS, PromptRegistry, PromptVersion
from evenkeel.spans import HEADER_PROMPT
from evenkeel_runtime.request.arrival import route_path
from evenkeel_runtime.request.headers import MAX_VALUE_CHARS
from evenkeel_runtime.request.trace import CURRENT_REQUEST, charge_to
from evenkeel_runtime.wire.cause import Cause

logger = logging.getLogger(__name__)

PATH = "/v1/chat/completions"
# Label changes take effect within this time; files are not read for every request.
FRESH_S = 1.0
MAX_KEPT = 256
_MAX_WARNED = 20


class PromptMiddleware:
    """Resolves prompt references; requests without one pass unchanged.

    vLLM instantiates it by dotted name (`--middleware`), so the folder comes with vLLM's own
    parsed flags, as `evenkeel_prompts_dir`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept: dict[str, tuple[float, PromptVersion | None]] = {}
        self._last: dict[str, PromptVersion] = {}
        self._warned: set[str] = set()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        folder = _find_folder(scope)
        if folder is None:
            await self._app(scope, receive, send)
            return
        wanted, registry = _header(scope), PromptRegistry(folder)

        def fill(body: bytes) -> bytes:
            if wanted is None and b'"prompt"' not in body:
                return body
            with _charge():
                return self._fill(body, wanted, registry)

        await self._app(scope, _Body(receive, fill).receive, send)

    def _fill(self, body: bytes, wanted: str | None, registry: PromptRegistry) -> bytes:
        """Return the body with the text of the prompt referenced by it or by the header, if any."""
        try:
            asked = json.loads(body)
            if not isinstance(asked, dict) or not isinstance(asked.get("messages"), list):
                return body
            found = self._resolve(asked.get("prompt"), registry) or self._resolve(wanted, registry)
            if found is None:
                return body
            has_system = any(
                isinstance(turn, dict) and turn.get("role") in ("system", "developer")
                for turn in asked["messages"]
            )
            filled = body if has_system else _insert(asked, found)
        except (ValueError, RecursionError):
            return body
        request = CURRENT_REQUEST.get()
        if request is not None:
            request.caller = replace(
                request.caller, prompt_name=found.name, prompt_version=found.version
            )
            if filled is not body:
                request.sent = body if request.sent is None else request.sent
                request.body = bytearray(filled)
        return filled

    def _resolve(self, reference: object, registry: PromptRegistry) -> PromptVersion | None:
        """Return the prompt for a reference, or None if it is not one."""
        if not isinstance(reference, str) or len(reference) > MAX_VALUE_CHARS:
            return None
        now_s = time.monotonic()
        kept = self._kept.get(reference)
        if kept is not None and now_s - kept[0] < FRESH_S:
            return kept[1]
        try:
            self._last[reference] = registry.resolve(reference)
            self._warned.discard(reference)
        except (ConfigurationError, OSError) as error:
            # A pull of the registry writes a label before its version, each file in two steps.
            self._warn(reference, registry, self._last.get(reference), error)
        found = self._last.get(reference)
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[reference] = (now_s, found)
        return found

    def _warn(
        self,
        reference: str,
        registry: PromptRegistry,
        last: PromptVersion | None,
        error: Exception,
    ) -> None:
        """Log each problem with a registry prompt once; other text is not a reference."""
        is_known = last is not None or reference.partition("@")[0] in registry.names()
        if not is_known or reference in self._warned or len(self._warned) >= _MAX_WARNED:
            return
        self._warned.add(reference)
        if last is None:
            logger.warning("serving a chat without the prompt it references: %s", error)
        else:
            logger.warning("still serving %s as version %s: %s", reference, last.version, error)


def _charge() -> AbstractContextManager[None]:
    """Attribute the rest of the request to its prompt."""
    request = CURRENT_REQUEST.get()
    return nullcontext() if request is None else charge_to(request, Cause.HOST_PROMPT)


def _insert(asked: dict[str, Any], prompt: PromptVersion) -> bytes:
    system = {"role": "system", "content": prompt.system}
    rest = {name: value for name, value in asked.items() if name != "prompt"}
    return json.dumps(rest | {"messages": [system, *asked["messages"]]}).encode()


def _find_folder(scope: MutableMapping[str, Any]) -> Path | None:
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    if route_path(scope) != PATH:
        return None
    args = getattr(scope["app"].state, "args", None)
    return getattr(args, "evenkeel_prompts_dir", None)


def _header(scope: MutableMapping[str, Any]) -> str | None:
    """Return `name@label` from the header; None if absent or if it names a version."""
    for name, value in scope["headers"]:
        if name == HEADER_PROMPT.encode():
            text: str = value.decode("latin-1").strip()
            return text if text.rpartition("@")[2] in LABELS and "@" in text else None
    return None


class _Body:
    """Reads a request's body when the app does: by then vLLM has checked the caller's API key.

    Args:
        receive: The connection.
        fill: Returns the body to give to the app.
    """

    def __init__(self, receive: Receive, fill: Callable[[bytes], bytes]) -> None:
        self._receive = receive
        self._fill = fill
        # The app may read twice at once, and may cancel a read and repeat it.
        self._lock = asyncio.Lock()
        self._parts: list[bytes] = []
        self._is_whole = False

    async def receive(self) -> Message:
        """Return the whole body as one message, then what follows it."""
        async with self._lock:
            while not self._is_whole:
                message = await self._receive()
                if message["type"] != "http.request":
                    return message
                self._parts.append(message.get("body", b""))
                if not message.get("more_body", False):
                    self._is_whole = True
                    body = self._fill(b"".join(self._parts))
                    return {"type": "http.request", "body": body, "more_body": False}
        return await self._receive()
