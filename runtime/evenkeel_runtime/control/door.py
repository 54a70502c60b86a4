"""Queue a request at the gate only after the response cache has missed.

Whether the cache answers is known only after vLLM's authentication and rendering, so the request
goes to vLLM's app at once and waits for its turn if the cache misses. A refusal must then bypass
the app: the app sees a disconnected client, which vLLM drops silently, and the caller gets the
refusal instead of the app's response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from starlette.types import Message, Receive, Send

from evenkeel_runtime.control.admission import AdmissionControl
from evenkeel_runtime.control.measure import claim_share, give_up_share
from evenkeel_runtime.control.visit import RefusedError, Visit

# Sent by vLLM's `--sse-keep-alive-interval` while there is no token.
_COMMENT = b":"


class Door:
    """One request's path to the engine, shared by the middleware and the cache.

    Args:
        control: The control hook.
        visit: The request.
    """

    def __init__(self, control: AdmissionControl, visit: Visit) -> None:
        self._control = control
        self._visit = visit
        self._is_inside = False
        self._refused: asyncio.Future[RefusedError] = asyncio.get_running_loop().create_future()
        self._start: Message | None = None

    @property
    def refusal(self) -> RefusedError | None:
        """Why it is not served; None if it is."""
        refused = self._refused
        return refused.result() if refused.done() and not refused.cancelled() else None

    def refuse(self, error: RefusedError) -> None:
        """Refuse the request before its turn; it leaves the queue, however long the app takes."""
        if self._refused.done():
            return
        self._refused.set_result(error)
        control, visit = self._control, self._visit
        if visit.claim is not None:
            control.costs.shares.leave(visit.claim, None)
        if visit.ticket is not None:
            control.gate.leave(visit.ticket)

    async def enter(self) -> None:
        """Wait for the request's turn; a refused request waits here until it is cancelled."""
        try:
            await self._wait()
        except RefusedError as error:
            self.refuse(error)
            # The app is told that its client has disconnected, and cancels this.
            await asyncio.get_running_loop().create_future()

    async def _wait(self) -> None:
        control, visit = self._control, self._visit
        # A beam search comes here once per beam.
        if self.refusal is not None:
            raise self.refusal
        claim = claim_share(control, visit)
        if claim is not None and not claim.let_in.done():
            await asyncio.wait((claim.let_in,), timeout=control.left_s(visit))
            if not claim.let_in.done():
                raise self.refusal or give_up_share(control, visit)
        ticket = visit.ticket or control.queue(visit)
        if not ticket.let_in.done():
            await asyncio.wait((ticket.let_in,), timeout=control.left_s(visit))
            if not ticket.let_in.done():
                raise self.refusal or control.give_up(visit)
        if self.refusal is not None:
            raise self.refusal
        if ticket.was_pushed_out:
            raise control.push_out(visit)
        # Cancelled if the request was dropped meanwhile.
        ticket.let_in.result()
        if not self._is_inside:
            self._is_inside = True
            control.enter(visit)

    def watch_receive(self, receive: Receive) -> Receive:
        """Return `receive` for the app, which sees a refusal as a client disconnect."""

        async def watched() -> Message:
            if self._is_inside:
                return await receive()
            reading = asyncio.ensure_future(receive())
            try:
                await asyncio.wait((reading, self._refused), return_when=asyncio.FIRST_COMPLETED)
                return {"type": "http.disconnect"} if self._refused.done() else reading.result()
            finally:
                reading.cancel()

        return watched

    def watch_send(self, send: Send) -> Send:
        """Return `send` for the app; a response's head is held until its first bytes.

        Keep-alive bytes do not count while the request waits here: once its head is sent, it can no
        longer be refused.
        """

        def watched(message: Message) -> Awaitable[None]:
            if self.refusal is not None:
                return _nothing()
            if not self._is_inside and message.get("body", b"").startswith(_COMMENT):
                return _nothing()
            if message["type"] == "http.response.start":
                self._start = message
                return _nothing()
            if self._start is not None:
                start, self._start = self._start, None
                return _send_both(send, start, message)
            return send(message)

        return watched


async def _nothing() -> None:
    """Send a message, unless the head is held or the request is refused."""


async def _send_both(send: Send, start: Message, message: Message) -> None:
    await send(start)
    await send(message)
