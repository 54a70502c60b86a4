"""Streaming client for OpenAI-compatible chat servers; measures client-side latency."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

import httpx

from evenkeel import spans
from evenkeel.errors import (
    CannotMeasureError,
    ConfigurationError,
    KeyRefusedError,
    first_line,
)
from evenkeel.retry_delay import read_retry_after
from evenkeel.secret_text import hide_password
from evenkeel_evals.ask.sides import Side
from evenkeel_evals.ask.stream import BROKE_OFF, StreamedAnswer, time_per_output_token_s

RETRIED_STATUSES = (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE)


@dataclass(frozen=True, slots=True)
class Call:
    """One request to make.

    Attributes:
        side: The server, model and sampling to use.
        messages: The conversation.
        trace_id: 32 hex digits; the server's span joins this trace.
        span_id: 16 hex digits; the server's span is a child of this span.
        session: Identifies the run and the side in the server's records.
        cache_salt: Isolates this call's prefix cache from others; None shares it.
    """

    side: Side
    messages: list[dict[str, str]]
    trace_id: str
    span_id: str
    session: str
    cache_salt: str | None

    def headers(self) -> dict[str, str]:
        """Return the request headers."""
        return {
            "traceparent": f"00-{self.trace_id}-{self.span_id}-01",
            spans.HEADER_PROMPT: self.side.prompt_label,
            spans.HEADER_SESSION: self.session,
            spans.HEADER_ROUTE: spans.ROUTE_EVAL,
        }

    def body(self) -> dict[str, Any]:
        """Return the request body."""
        body: dict[str, Any] = {
            "model": self.side.model,
            "messages": self.messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.side.sampling,
        }
        if self.cache_salt is not None:
            body["cache_salt"] = self.cache_salt
        return body


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply as the client saw it, with client-side times.

    Attributes:
        start_ns: Wall-clock time at which the request was sent.
        end_ns: Wall-clock time at which the last byte was read.
        text: The answer; None if there was an error.
        error: One line on why there is no answer.
        ttft_s: First text − send.
        e2e_s: Last text − send.
        tpot_s: (last − first text) / (output tokens − 1); None below 2 tokens. After a timeout,
            it is measured up to the limit, counting text chunks, since the token count is unknown.
        input_tokens: As counted by the server.
        output_tokens: As counted by the server.
        finish_reason: As reported by the server.
        is_cached: Whether it comes from an earlier run's cache; it then has no times.
        has_timed_out: Whether the answer timed out; e2e_s, and ttft_s if no text came, are then the
            timeout, a lower bound of the true value.
        num_retries: Earlier attempts that found no server; no time here includes them.
        cached_tokens: Input tokens that the server read from its prefix cache, if it says so.
        reasoning_tokens: Output tokens spent on reasoning, if it says so.
    """

    start_ns: int
    end_ns: int
    text: str | None = None
    error: str | None = None
    ttft_s: float | None = None
    e2e_s: float | None = None
    tpot_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    is_cached: bool = False
    has_timed_out: bool = False
    num_retries: int = 0
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


def check_key(reply: Reply, url: str, *, is_judge: bool = False) -> None:
    """Check that a server accepted the key; it may have listed its models without one.

    Raises:
        KeyRefusedError: If it did not.
    """
    if reply.error is not None and reply.error.startswith(f"HTTP {int(httpx.codes.UNAUTHORIZED)}"):
        setting = f"EVENKEEL_EVAL_{'JUDGE_' if is_judge else ''}API_KEY"
        whose = "the judge at " if is_judge else ""
        raise KeyRefusedError(
            f"{whose}{hide_password(url)}: {reply.error}; give its key in {setting}"
        )


class Obstacle(StrEnum):
    """Why a call may be worth a retry.

    GONE: no connection. REFUSED: HTTP 429 or 503. BROKEN: the connection was lost after the
    request was sent. An HTTP 500 or a timeout is never retried: it counts against the side.
    """

    GONE = "gone"
    REFUSED = "refused"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a request and its result.

    Attributes:
        reply: The reply.
        obstacle: Why a retry may help; None if the reply is final.
        retry_after_s: Seconds the server asked to wait before a retry; None if it did not say.
    """

    reply: Reply
    obstacle: Obstacle | None = None
    retry_after_s: float | None = None


class ChatClient:
    """A streaming client; use it as an async context manager.

    Proxies from the environment are ignored: they would add to the measured latency. This client
    never retries; `evenkeel_evals.ask.retries` does if a server is unavailable.

    Args:
        concurrency: Maximum number of open connections.
        timeout_s: Timeout per answer, in seconds.
        api_key: Sent as a bearer token if given.
        slo_class: The SLO class that requests name, if given.
    """

    def __init__(
        self,
        concurrency: int,
        timeout_s: float,
        api_key: str | None = None,
        slo_class: str | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        if slo_class is not None:
            headers[spans.HEADER_SLO_CLASS] = slo_class
        context = httpx.create_ssl_context(trust_env=False)
        # One client per lane, with a connection to each side's server: a shared pool scans all its
        # connections on each request.
        self._lanes = [
            httpx.AsyncClient(
                timeout=httpx.Timeout(timeout_s, connect=min(10.0, timeout_s / 2)),
                limits=httpx.Limits(max_connections=2, max_keepalive_connections=2),
                headers=headers,
                trust_env=False,
                verify=context,
            )
            for _ in range(concurrency)
        ]
        self._free: asyncio.LifoQueue[httpx.AsyncClient] = asyncio.LifoQueue()
        for lane in self._lanes:
            self._free.put_nowait(lane)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for lane in self._lanes:
            await lane.aclose()

    async def ask(self, call: Call) -> Reply:
        """Return the reply; an error becomes a reply with a reason, never an exception."""
        return (await self.attempt(call)).reply

    async def attempt(self, call: Call, *, reconnects: bool = False) -> Attempt:
        """Make one request; an error becomes a reply with a reason, never an exception.

        Args:
            call: The request.
            reconnects: Whether to open the connection before the clock starts.
        """
        lane = await self._free.get()
        try:
            if reconnects:
                with suppress(httpx.HTTPError, httpx.InvalidURL):
                    await lane.get(f"{call.side.url}/v1/models", timeout=10.0)
            return await self._ask(lane, call)
        finally:
            self._free.put_nowait(lane)

    async def _ask(self, lane: httpx.AsyncClient, call: Call) -> Attempt:
        url = f"{call.side.url}/v1/chat/completions"
        content = json.dumps(call.body()).encode()
        headers = {**call.headers(), "Content-Type": "application/json"}
        start_ns, sent_ns = time.time_ns(), time.perf_counter_ns()
        answer = StreamedAnswer(sent_ns)
        error: str | None
        has_timed_out = False
        obstacle, retry_after_s = None, None
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                lane.stream("POST", url, content=content, headers=headers) as response,
            ):
                error = await _read(response, answer)
                if response.status_code in RETRIED_STATUSES:
                    obstacle = Obstacle.REFUSED
                    retry_after_s = read_retry_after(response.headers.get("retry-after"))
                elif error == BROKE_OFF:
                    obstacle = Obstacle.BROKEN
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL) as failure:
            has_timed_out = isinstance(failure, TimeoutError | httpx.ReadTimeout)
            obstacle = _find_obstacle(failure)
            error = self._explain(failure)
        end_ns = start_ns + time.perf_counter_ns() - sent_ns
        if has_timed_out:
            limit_s, ttft_s = self._timeout_s, answer.ttft_s
            return Attempt(
                Reply(
                    start_ns,
                    end_ns,
                    error=error,
                    ttft_s=limit_s if ttft_s is None else ttft_s,
                    e2e_s=limit_s,
                    tpot_s=time_per_output_token_s(ttft_s, limit_s, answer.num_pieces),
                    has_timed_out=True,
                )
            )
        if error is not None:
            return Attempt(Reply(start_ns, end_ns, error=error), obstacle, retry_after_s)
        return Attempt(
            Reply(
                start_ns=start_ns,
                end_ns=end_ns,
                text=answer.text,
                ttft_s=answer.ttft_s,
                e2e_s=answer.e2e_s,
                tpot_s=answer.tpot_s,
                input_tokens=answer.input_tokens,
                output_tokens=answer.output_tokens,
                cached_tokens=answer.cached_tokens,
                reasoning_tokens=answer.reasoning_tokens,
                finish_reason=answer.finish_reason,
            )
        )

    def _explain(self, failure: Exception) -> str:
        """Return why a request has no answer."""
        if isinstance(failure, TimeoutError):
            return f"no complete answer within {self._timeout_s:g} s"
        name = type(failure).__name__
        if isinstance(failure, httpx.TimeoutException):
            return f"timed out ({name})"
        return f"{name}: {str(failure) or 'connection lost'}"

    async def connect(self, url: str) -> None:
        """Open every lane's connection to a server, so that no measured call has to connect.

        For resumed runs, which do not repeat their warm-up.
        """
        await asyncio.gather(
            *(lane.get(f"{url}/v1/models", timeout=10.0) for lane in self._lanes),
            return_exceptions=True,
        )

    async def find_engine(self, url: str) -> str | None:
        """Return the version from the server's `/version`, as in vLLM; None if none."""
        try:
            response = await self._lanes[0].get(f"{url}/version", timeout=10.0)
            response.raise_for_status()
            version = response.json().get("version")
        except (httpx.HTTPError, ValueError, RecursionError, AttributeError):
            return None
        return None if version is None else str(version)

    async def find_model(self, url: str, wanted: str | None) -> str:
        """Return the model to ask for, after checking that the server serves it.

        Raises:
            KeyRefusedError: If the server does not accept the key.
            CannotMeasureError: If no usable server answers at `url`.
            ConfigurationError: If the server does not serve the wanted model.
        """
        shown = hide_password(url)
        try:
            response = await self._lanes[0].get(f"{url}/v1/models", timeout=10.0)
            response.raise_for_status()
            served = [str(model["id"]) for model in response.json()["data"]]
        except httpx.HTTPStatusError as error:
            code = error.response.status_code
            if code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
                raise KeyRefusedError(
                    f"{shown}/v1/models answered {code}; give its key in EVENKEEL_EVAL_API_KEY, a "
                    "judge's in EVENKEEL_EVAL_JUDGE_API_KEY"
                ) from error
            raise CannotMeasureError(
                f"{shown}/v1/models answered {code}; is it an OpenAI server?"
            ) from error
        except httpx.HTTPError as error:
            raise CannotMeasureError(
                f"no server answers at {shown}: {first_line(error)}; start it and wait until it is "
                "ready, or correct --url or the side's url"
            ) from error
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            raise CannotMeasureError(
                f"{shown}/v1/models did not return a list of models"
            ) from error
        if wanted is None and served:
            return served[0]
        if wanted not in served:
            raise ConfigurationError(
                f"{shown} does not serve the model {wanted!r}; "
                f"it serves {', '.join(served) or 'none'}"
            )
        return wanted


def _find_obstacle(failure: Exception) -> Obstacle | None:
    """Return the obstacle if a retry may help, otherwise None."""
    if isinstance(failure, httpx.ConnectTimeout | httpx.ConnectError):
        return Obstacle.GONE
    if isinstance(failure, httpx.NetworkError | httpx.RemoteProtocolError):
        return Obstacle.BROKEN
    return None


async def _read(response: httpx.Response, answer: StreamedAnswer) -> str | None:
    """Feed the stream to `answer`; return the error, or None."""
    if response.status_code != httpx.codes.OK:
        body = await response.aread()
        return f"HTTP {response.status_code}: {_reason(body)}"
    async for chunk in response.aiter_bytes():
        # Read past [DONE]: only a fully read response leaves its connection reusable.
        answer.feed(chunk, time.perf_counter_ns())
    answer.end()
    return answer.problem()


def _reason(body: bytes) -> str:
    """Return the first line of a server's error message."""
    text = body[:4096].decode("utf-8", "replace")
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, Mapping):
        error = parsed.get("error")
        message = error.get("message") if isinstance(error, Mapping) else parsed.get("message")
        text = str(message or error or parsed.get("detail") or text)
    lines = text.strip().splitlines()
    return lines[0][:200] if lines else "no explanation"
