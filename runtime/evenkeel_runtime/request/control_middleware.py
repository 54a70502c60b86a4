"""ASGI middleware that holds each request until admission control admits or rejects it."""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Awaitable
from typing import Any

from pydantic import TypeAdapter, ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evenkeel_runtime.control.admission import AdmissionControl
from evenkeel_runtime.control.config import ControlMode
from evenkeel_runtime.control.door import Door
from evenkeel_runtime.control.service import ControlService
from evenkeel_runtime.control.visit import RefusedError, Visit
from evenkeel_runtime.request.arrival import find_engine
from evenkeel_runtime.request.content import read_object
from evenkeel_runtime.request.trace import CURRENT_REQUEST, HttpRequest

# The response cache only answers chats.
_CACHED_PATH = "/v1/chat/completions"
# Prompts are rendered before these requests are admitted.
_SIZED_PATHS = frozenset({_CACHED_PATH, "/v1/completions"})
# vLLM checks API keys inside this middleware: such a caller may not be the tenant that it names.
_NOT_ALLOWED = (401, 403)
# What vLLM streams before the engine has answered: keep-alive comments, and the first events of a
# response (entrypoints/openai/responses/serving.py), each in a message of its own.
_NO_TOKEN = (b":", b"event: response.created\n", b"event: response.in_progress\n")
# Requests of these may be streamed. The word in a prompt has escaped quotes.
_STREAMED_OPERATIONS = frozenset({"chat", "text_completion"})
_STREAMED = re.compile(rb'"stream"\s*:\s*true')
# Of a body in several messages, what may be split between two of them.
_MAX_STREAMED_BYTES = 32
# A background response goes on without its HTTP request, so nothing would bound it.
_RESPONSES_PATH = "/v1/responses"
# What is in every JSON body with this key: the key, an escape in it, or UTF-16.
_BACKGROUND = re.compile(rb"background|\\u|\0")
_BOOL = TypeAdapter(bool)
_BAD_REQUEST = 400
_MAX_READ_AHEAD_BYTES = 256 * 1024 * 1024


class ControlMiddleware:
    """Admits requests when it is their turn and answers 429 or 503 to rejected ones.

    vLLM instantiates it by dotted name, inside the arrival middleware, which records the requests
    rejected here.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._budget = BodyBudget(_MAX_READ_AHEAD_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        service = _find_service(scope)
        if service is None:
            await self._app(scope, receive, send)
            return
        request = CURRENT_REQUEST.get()
        if request is None or service.control.config.mode is ControlMode.OFF:
            await self._app(scope, receive, send)
            return
        try:
            await self._serve(service.control, request, scope, receive, send)
        except RefusedError as error:
            request.refused_by = error.reason
            body = {"error": {"message": str(error), "type": error.reason, "code": error.status}}
            headers = []
            if error.retry_after_s is not None:
                headers.append((b"retry-after", str(error.retry_after_s).encode()))
            await _answer(send, error.status, body, headers)

    async def _serve(
        self,
        control: AdmissionControl,
        request: HttpRequest,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        visit = control.arrive(request.caller, _content_length(scope))
        request.visit = visit
        send = _watch(control, visit, send)
        try:
            engine = find_engine(scope)
            is_sized = getattr(engine, "admits_at_engine", False) and request.path in _SIZED_PATHS
            if is_sized or (request.path == _CACHED_PATH and engine.cache is not None):
                await self._serve_at_engine(Door(control, visit), request, scope, receive, send)
                return
            reads = visit if request.operation in _STREAMED_OPERATIONS else None
            turn = _Turn(control, visit, _Waiting(receive, self._budget, reads))
            turn.checks_body = request.path == _RESPONSES_PATH
            await self._serve_in_turn(turn, scope, send)
        finally:
            tokens, cached = request.count_tokens(), request.count_cached_tokens()
            control.leave(visit, tokens, cached, request.find_answer_length())

    async def _serve_at_engine(
        self, door: Door, request: HttpRequest, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Let the app render the prompt and check its cache first; then the request is admitted.

        Only then is the prompt's length known, and a cache hit needs no admission.
        """
        request.door = door
        try:
            await self._app(scope, door.watch_receive(receive), door.watch_send(send))
        except Exception:
            # Its client has left, as far as the app knows; it may fail over that.
            if door.refusal is None:
                raise
        finally:
            if door.refusal is not None:
                request.forget_runs()
        if door.refusal is not None:
            raise door.refusal

    async def _serve_in_turn(self, turn: _Turn, scope: Scope, send: Send) -> None:
        """Let the app check the caller's API key first; then the request is admitted."""
        try:
            await self._app(scope, turn.receive, turn.watch_send(send))
        except Exception:
            # Code that reads a body fails in many ways if the client has left.
            if not turn.is_missed:
                raise
        finally:
            turn.end()
        if turn.refusal is not None:
            raise turn.refusal


class _Turn:
    """The turn of a request that vLLM does not render before it is admitted.

    It joins the queue when the app first reads its body: by then vLLM, and any middleware that
    reads only the head, has refused a caller without an API key. If the app begins to answer
    before that or meanwhile, the request needs no turn.

    Args:
        control: The control hook.
        visit: The request.
        waiting: Reads its connection.

    Attributes:
        checks_body: Whether its body may ask for a background response, which is refused.
        is_missed: Whether it is not served; the app sees a disconnected client.
        refusal: Why it is not served; None if the client left.
    """

    def __init__(self, control: AdmissionControl, visit: Visit, waiting: _Waiting) -> None:
        self._control = control
        self._visit = visit
        self._waiting = waiting
        # The app may read twice at once, and may cancel a read and repeat it.
        self._lock = asyncio.Lock()
        self._may_read = False
        self._body = bytearray()
        self.checks_body = False
        self.is_missed = False
        self.refusal: RefusedError | None = None

    async def receive(self) -> Message:
        """Return the next message once its turn has come."""
        async with self._lock:
            if not (self._may_read or self.is_missed):
                await self._wait()
        message: Message = {} if self.is_missed else await self._waiting.receive()
        if self.checks_body and message.get("type") == "http.request":
            self._check(message)
        return {"type": "http.disconnect"} if self.is_missed else message

    def _check(self, message: Message) -> None:
        self._body += message.get("body", b"")
        if message.get("more_body", False):
            return
        self.checks_body = False
        if asks_for_background(self._body):
            what = "`background` is not served while control acts; leave it out"
            try:
                self._control.refuse(self._visit, _BAD_REQUEST, "background", what, None)
            except RefusedError as error:
                self._miss(error)
        self._body = bytearray()

    async def _wait(self) -> None:
        control, visit, waiting = self._control, self._visit, self._waiting
        try:
            ticket = visit.ticket or control.queue(visit)
        except RefusedError as error:
            self._miss(error)
            return
        if not ticket.let_in.done():
            await waiting.wait(ticket.let_in, control.left_s(visit))
        waiting.give_back()
        if self._may_read:
            return
        if waiting.has_left:
            self._miss(None)
        elif ticket.is_inside:
            self._may_read = True
            control.enter(visit)
        else:
            is_last = ticket.was_pushed_out
            self._miss(control.push_out(visit) if is_last else control.give_up(visit))

    def _miss(self, refusal: RefusedError | None) -> None:
        self.is_missed = True
        self.refusal = refusal
        self._leave_queue()

    def _leave_queue(self) -> None:
        if self._visit.ticket is not None:
            self._control.gate.leave(self._visit.ticket)

    def watch_send(self, send: Send) -> Send:
        """Return `send` for the app, without its answer to the disconnect that it saw."""

        def watched(message: Message) -> Awaitable[None]:
            if self.is_missed:
                return _nothing()
            if not self._may_read and message["type"] == "http.response.start":
                self._may_read = True
                self._leave_queue()
            return send(message)

        return watched

    def end(self) -> None:
        """Stop reading ahead; the app has returned, and no read that it left behind waits."""
        self._may_read = True
        self._waiting.stop()


class BodyBudget:
    """Total bytes of request bodies that may be buffered for waiting requests."""

    def __init__(self, num_bytes: int) -> None:
        self.left = num_bytes


class _Waiting:
    """Reads a waiting request's connection, so that a client that disconnects leaves the queue.

    Once the budget is spent, reading stops: the rest of the body stays in the connection, and a
    disconnect is only noticed when the request's turn comes.

    Args:
        receive: The connection.
        budget: What all of them may buffer.
        visit: Learns from the body whether its answer is streamed; None if it never is.
    """

    def __init__(self, receive: Receive, budget: BodyBudget, visit: Visit | None) -> None:
        self._receive = receive
        self._budget = budget
        self._visit = visit
        self._num_held = 0
        self._tail = b""
        self._messages: deque[Message] = deque()
        self._reading: asyncio.Task[Message] | None = None
        self.has_left = False

    async def wait(self, turn: asyncio.Future[None], longest_s: float) -> None:
        """Wait until admitted, until the client disconnects, or until the timeout.

        If it is cancelled, nothing that was read is lost, and it can be called again.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + longest_s
        while not turn.done() and not self.has_left:
            if self._reading is None and self._budget.left > 0:
                self._reading = asyncio.ensure_future(self._receive())
            reading = self._reading
            if reading is None or not reading.done():
                waited: list[asyncio.Future[Any]] = [turn] if reading is None else [turn, reading]
                left_s = deadline_s - loop.time()
                done, _ = await asyncio.wait(
                    waited, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
            if reading is not None and reading.done():
                self._keep(reading.result())

    def _keep(self, message: Message) -> None:
        self._reading = None
        self._messages.append(message)
        self.has_left = message["type"] == "http.disconnect"
        num_bytes = len(message.get("body", b""))
        self._num_held += num_bytes
        self._budget.left -= num_bytes
        if self._visit is not None and not self._visit.is_streamed:
            seen = self._tail + message.get("body", b"")
            self._visit.is_streamed = _STREAMED.search(seen) is not None
            self._tail = seen[-_MAX_STREAMED_BYTES:]

    def give_back(self) -> None:
        """Release the buffered bytes to the budget; the request is no longer waiting."""
        self._budget.left += self._num_held
        self._num_held = 0

    def stop(self) -> None:
        """Stop reading; the request has ended."""
        self.give_back()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def receive(self) -> Message:
        """Return the buffered messages first, then new ones from the connection."""
        while self._reading is not None and not self._messages:
            reading = self._reading
            # A cancelled call leaves the message for the next one. Starlette's `is_disconnected`
            # cancels its read as soon as that waits.
            if not reading.done():
                await asyncio.wait((reading,))
            if self._reading is reading:
                self._reading = None
                return reading.result()
        return self._messages.popleft() if self._messages else await self._receive()


def asks_for_background(body: bytes | bytearray) -> bool:
    """Whether vLLM would read this body as a request for a background response."""
    asked = read_object(body) if _BACKGROUND.search(body) else None
    try:
        return _BOOL.validate_python((asked or {}).get("background"))
    except ValidationError:
        return False


async def _nothing() -> None:
    """Send nothing: the app answers a caller that is not served."""


def _watch(control: AdmissionControl, visit: Visit, send: Send) -> Send:
    """Wrap `send` to detect the first token of a streamed answer, and refused callers."""
    is_stream = False

    def watched(message: Message) -> Awaitable[None]:
        nonlocal is_stream
        if not visit.has_first_token:
            if message["type"] == "http.response.start":
                is_stream = message["status"] == 200 and _is_event_stream(message)
                if message["status"] in _NOT_ALLOWED:
                    visit.refund()
            elif is_stream and (body := message.get("body")) and not body.startswith(_NO_TOKEN):
                control.record_first_token(visit)
        return send(message)

    return watched


def _is_event_stream(message: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in message.get("headers", ())
    )


def _content_length(scope: Scope) -> int:
    """Return the declared body size, or 0 if none is declared."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _find_service(scope: Scope) -> ControlService | None:
    service = getattr(find_engine(scope), "control", None) if scope["type"] == "http" else None
    return service if isinstance(service, ControlService) else None


async def _answer(
    send: Send, status: int, body: dict[str, Any], headers: list[tuple[bytes, bytes]]
) -> None:
    content = json.dumps(body).encode()
    length = (b"content-length", str(len(content)).encode())
    kind = (b"content-type", b"application/json")
    head = {"type": "http.response.start", "status": status, "headers": [kind, length, *headers]}
    await send(head)
    await send({"type": "http.response.body", "body": content})
