"""Reads what log events say of calls: of agents, by their own names, and of GenAI's conventions.

Names and units are those of Claude Code's documentation and Codex CLI's source; the versions are in
tests/fixtures/agent_events.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from evenkeel import conventions, spans

_CONTENT = {
    conventions.INPUT_MESSAGES,
    conventions.OUTPUT_MESSAGES,
    conventions.SYSTEM_INSTRUCTIONS,
    conventions.TOOL_DEFINITIONS,
}
CODEX_REQUEST, CODEX_SEND = "codex.api_request", "codex.websocket_request"
# Its other endpoints, which summarise conversations, have no event at the end. Older versions
# name none.
_STREAMING = (None, "unknown", "/responses")
# More tokens are no request's.
MAX_COUNT = 1e9
_OURS = "evenkeel."
_KEPT = ("gen_ai.", "server.", "evenkeel.", "aws.", "azure.", "openai.")
# Gemini CLI, and who copied it, sends the event as it asks, too: such a one has nothing of these.
_GEMINI_CLI = "event.timestamp"
_OF_END = ("gen_ai.response.", "gen_ai.usage.", conventions.ERROR_TYPE)


@dataclass(frozen=True, slots=True)
class DescribedCall:
    """A call as an event describes it.

    `duration_ms` is None if it is unknown; `error` is a message, None if the call succeeded.
    `ends` is the conversation whose latest begun request this is the end of.
    """

    name: str
    attributes: Mapping[str, str]
    kind: Span.SpanKind.ValueType = Span.SPAN_KIND_CLIENT
    duration_ms: str | None = None
    error: str | None = None
    ends: str | None = None


def number_of(text: str | None) -> float | None:
    """Return a finite number of at least 0, None for any other text."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _sum(first: str | None, *texts: str | None) -> str:
    """Return the sum of counts; if one of them is none, that one, which the store refuses."""
    if not first:
        return ""
    total = 0
    for text in filter(None, (first, *texts)):
        number = number_of(text)
        if number is None or number > MAX_COUNT or not number.is_integer():
            return text
        total += int(number)
    return str(total)


def _is_false(text: str | None) -> bool:
    return (text or "").lower() == "false"


def _claude_request(event: Mapping[str, str]) -> DescribedCall | None:
    read, written = event.get("cache_read_tokens"), event.get("cache_creation_tokens")
    return _request(
        event,
        "anthropic",
        {
            conventions.RESPONSE_ID: event.get("request_id", ""),
            # Anthropic counts cached tokens apart, the conventions among the input's.
            conventions.INPUT_TOKENS: _sum(event.get("input_tokens"), read, written),
            conventions.CACHED_TOKENS: read or "",
            conventions.CACHE_WRITE_TOKENS: written or "",
            conventions.OUTPUT_TOKENS: event.get("output_tokens", ""),
            conventions.COST: event.get("cost_usd", ""),
            conventions.AGENT_NAME: event.get("agent.name", ""),
        },
    )


def _claude_error(event: Mapping[str, str]) -> DescribedCall | None:
    status = event.get("status_code", "")
    return _request(
        event,
        "anthropic",
        {
            conventions.RESPONSE_ID: event.get("request_id", ""),
            conventions.ERROR_TYPE: status or "error",
            conventions.HTTP_STATUS: status,
        },
        error=event.get("error", ""),
    )


def _codex_request(event: Mapping[str, str]) -> DescribedCall | None:
    """An attempt that failed; a successful one is counted when its stream is complete."""
    status, error = event.get("http.response.status_code", ""), event.get("error.message")
    if error is None and status.startswith("2"):
        return None
    return _request(
        event,
        "openai",
        {conventions.ERROR_TYPE: status or "error", conventions.HTTP_STATUS: status},
        error=error or "",
    )


def _codex_send(event: Mapping[str, str]) -> DescribedCall | None:
    """A request over a WebSocket, which is counted when its stream is complete."""
    return None


def _codex_stream(event: Mapping[str, str]) -> DescribedCall | None:
    """The end of a stream, complete or failed."""
    kind, error = event.get("event.kind", ""), event.get("error.message")
    # Each event of the stream is reported, and its last one again with the answer's tokens.
    if error is None and (kind != "response.completed" or "input_token_count" not in event):
        return None
    ttft_ms = number_of(event.get("ttft_ms"))
    counts = {
        conventions.INPUT_TOKENS: event.get("input_token_count", ""),
        conventions.OUTPUT_TOKENS: event.get("output_token_count", ""),
        conventions.CACHED_TOKENS: event.get("cached_token_count", ""),
        conventions.CACHE_WRITE_TOKENS: event.get("cache_write_token_count", ""),
        conventions.REASONING_TOKENS: event.get("reasoning_token_count", ""),
        conventions.TIME_TO_FIRST_CHUNK: "" if ttft_ms is None else str(ttft_ms / 1e3),
        conventions.ERROR_TYPE: "" if error is None else kind or "stream",
    }
    # Its duration is the wait for this last event, not the request's.
    call = _request({**event, "duration_ms": ""}, "openai", counts, error=error)
    return replace(call, ends=_session_of(event))


def begins(name: str, event: Mapping[str, str]) -> str | None:
    """Return the conversation whose request an event says was sent, None for other events.

    Over HTTP, Codex says so when the answer begins, over a WebSocket once it has sent the request.
    """
    if "error.message" in event:
        return None
    if name == CODEX_SEND:
        return _session_of(event) or None
    status, endpoint = event.get("http.response.status_code", ""), event.get("endpoint")
    is_begun = name == CODEX_REQUEST and status.startswith("2")
    return (_session_of(event) or None) if is_begun and endpoint in _STREAMING else None


def _request(
    event: Mapping[str, str], provider: str, more: Mapping[str, str], error: str | None = None
) -> DescribedCall:
    model = event.get("model", "")
    return DescribedCall(
        f"chat {model}".rstrip(),
        {
            conventions.OPERATION: "chat",
            conventions.PROVIDER: provider,
            conventions.REQUEST_MODEL: model or "unknown",
            conventions.CONVERSATION_ID: _session_of(event),
            **more,
        },
        duration_ms=event.get("duration_ms"),
        error=error,
    )


def _tool(event: Mapping[str, str]) -> DescribedCall | None:
    name = event.get("tool_name") or event.get("name", "")
    has_failed = _is_false(event.get("success"))
    return DescribedCall(
        f"execute_tool {name}".rstrip(),
        {
            conventions.OPERATION: "execute_tool",
            conventions.TOOL_NAME: name,
            conventions.TOOL_CALL_ID: event.get("tool_use_id") or event.get("call_id", ""),
            conventions.CONVERSATION_ID: _session_of(event),
            conventions.ERROR_TYPE: event.get("error_type", "error") if has_failed else "",
        },
        kind=Span.SPAN_KIND_INTERNAL,
        duration_ms=event.get("duration_ms"),
        error=event.get("error", "") if has_failed else None,
    )


def _inference(event: Mapping[str, str]) -> DescribedCall | None:
    if _GEMINI_CLI in event and not any(name.startswith(_OF_END) for name in event):
        return None
    operation = event.get(conventions.OPERATION) or "chat"
    if operation.startswith(_OURS):
        # Spans of ours are known by such names, and an event is none of them.
        operation = "chat"
    model = event.get(conventions.REQUEST_MODEL) or event.get(conventions.RESPONSE_MODEL, "")
    return DescribedCall(
        f"{operation} {model}".rstrip(),
        {
            **_kept(event),
            conventions.OPERATION: operation,
            conventions.REQUEST_MODEL: model or "unknown",
        },
        error="" if event.get(conventions.ERROR_TYPE) else None,
    )


def _evaluation(event: Mapping[str, str]) -> DescribedCall | None:
    return DescribedCall(spans.SPAN_EVALUATION, _kept(event), kind=Span.SPAN_KIND_INTERNAL)


def _kept(event: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in event.items() if k.startswith(_KEPT) and k not in _CONTENT}
    kept[conventions.ERROR_TYPE] = event.get(conventions.ERROR_TYPE, "")
    kept[conventions.CONVERSATION_ID] = _session_of(event)
    return kept


def _session_of(event: Mapping[str, str]) -> str:
    names = (conventions.CONVERSATION_ID, conventions.SESSION_ID, "conversation.id")
    return next((text for name in names if (text := event.get(name))), "")


READERS: Mapping[str, Callable[[Mapping[str, str]], DescribedCall | None]] = {
    conventions.EVENT_INFERENCE: _inference,
    conventions.EVENT_EVALUATION: _evaluation,
    "claude_code.api_request": _claude_request,
    "claude_code.api_error": _claude_error,
    "claude_code.tool_result": _tool,
    CODEX_REQUEST: _codex_request,
    CODEX_SEND: _codex_send,
    "codex.sse_event": _codex_stream,
    "codex.tool_result": _tool,
}
