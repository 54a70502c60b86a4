"""Checks host, token, media type and size of API requests before FastAPI reads them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, MutableMapping
from typing import Any

from starlette.types import ASGIApp

from evenkeel_collector.intake.intake import REFUSALS, Intake
from evenkeel_collector.intake.signals import JSON
from evenkeel_collector.operators.problems import FEEDBACK_PATH, problem, refuse
from evenkeel_collector.ports.access import AccessScope, ForbiddenError, secret_of
from evenkeel_collector.ports.body import (
    DisconnectedError,
    MediaTypeError,
    Receive,
    Scope,
    Send,
    media_type_of,
    read_body,
    read_headers,
)
from evenkeel_collector.ports.hosts import KnownHosts

MAX_BODY_BYTES = 64 << 10
ME_PATH = "/api/me"


class ApiAccess:
    """ASGI middleware that passes a request on with its complete body, or refuses it.

    Reads need a token with the scope `query`, actions `admin`, and feedback `ingest`. A token of
    one tenant may only send feedback and read `/api/me`: alerts and SLOs cover all tenants.
    `request.state` has the `tenant` and, for the audit log, the first digits of the token's
    SHA-256 as `token`.

    Args:
        app: The application behind the checks.
        intake: Has the tokens and the memory budget.
        hosts: The host names that the API answers to; feedback is accepted under any.
    """

    def __init__(self, app: ASGIApp, intake: Intake, hosts: KnownHosts) -> None:
        self._app = app
        self._intake = intake
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, or refuse it."""
        path = scope["path"]
        misdirected = None if path == FEEDBACK_PATH else self._hosts.refusal(scope)
        try:
            if misdirected is not None:
                reason = misdirected.body.decode().strip()
                await problem(misdirected.status, reason)(scope, receive, send)
            else:
                await self._let_in(scope, receive, send)
        except DisconnectedError:
            return
        except tuple(REFUSALS) as error:
            await refuse(self._intake, path, error)(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, headers = scope["method"], read_headers(scope)
        scope = {**scope, "state": self._identify(scope["path"], method, headers)}
        if method != "POST":
            # A HEAD is answered as a GET, whose body the server leaves out.
            scope["method"] = "GET" if method == "HEAD" else method
            await self._app(scope, receive, send)
            return
        # A form or plain text can be sent by any page a browser has open; JSON cannot.
        if media_type_of(headers) != JSON:
            raise MediaTypeError(f"send {JSON}")
        with self._intake.memory.lease(MAX_BODY_BYTES):
            body = await read_body(receive, MAX_BODY_BYTES)
            await self._app(scope, _replay(body, receive), send)

    def _identify(self, path: str, method: str, headers: Mapping[str, str]) -> dict[str, Any]:
        access, secret = self._intake.access, secret_of(headers)
        if path == FEEDBACK_PATH:
            return {"tenant": access.check(secret, AccessScope.INGEST)}
        needed = AccessScope.ADMIN if method == "POST" else AccessScope.QUERY
        tenant = access.check(secret, needed)
        if tenant is not None and path != ME_PATH:
            verb = "change" if method == "POST" else "see"
            raise ForbiddenError(f"tenant {tenant!r} may not {verb} data of all tenants")
        digest = hashlib.sha256((secret or "").encode("utf-8", "surrogateescape")).hexdigest()
        return {"tenant": tenant, "token": "" if access.is_open else digest[:12]}


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that returns the body already read, then later messages."""
    whole = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replayed() -> MutableMapping[str, Any]:
        return next(whole, None) or await receive()

    return replayed
