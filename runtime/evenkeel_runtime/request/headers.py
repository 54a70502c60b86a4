"""Reads the caller's identity and trace context from HTTP headers.

A malformed header is ignored and named in `Caller.unreadable`; it never fails its request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from evenkeel.spans import (
    HEADER_KNOWLEDGE,
    HEADER_PROMPT,
    HEADER_ROUTE,
    HEADER_SESSION,
    HEADER_SLO_CLASS,
    HEADER_TENANT,
    HEADERS_SESSION_OTHERS,
)
from evenkeel_runtime.wire.caller import Caller, TraceParent

HEADER_TRACE_PARENT = "traceparent"

HEADER_TRACE_STATE = "tracestate"

MAX_VALUE_CHARS = 256

# W3C Trace Context caps what a vendor must pass on at 512 characters.
MAX_TRACE_STATE_CHARS = 512

# Version ff is forbidden, and a later version may append fields after the flags.
_TRACE_PARENT = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)

_FIELD_OF_HEADER = {
    HEADER_TENANT: "tenant",
    HEADER_SESSION: "session_id",
    HEADER_SLO_CLASS: "slo_class",
    HEADER_ROUTE: "route",
}

_KNOWN = {
    name.encode(): name
    for name in (
        *_FIELD_OF_HEADER,
        *HEADERS_SESSION_OTHERS,
        HEADER_KNOWLEDGE,
        HEADER_PROMPT,
        HEADER_TRACE_PARENT,
        HEADER_TRACE_STATE,
    )
}


_LISTS = (HEADER_KNOWLEDGE, HEADER_TRACE_STATE)


def read_headers(headers: Iterable[tuple[bytes, bytes]]) -> Caller:
    """Read the ASGI `headers` of one request; names are lower case, as ASGI gives them.

    If a header is repeated, the first value is used; only those that are lists may be split over
    several headers: `tracestate` (W3C Trace Context 3.3.1) and the sources of an answer. A
    `tracestate` without a valid `traceparent` is dropped.
    """
    seen: dict[str, str] = {}
    malformed: list[str] = []
    for raw_name, raw_value in headers:
        name = _KNOWN.get(raw_name)
        if name is None:
            continue
        limit = MAX_TRACE_STATE_CHARS if name == HEADER_TRACE_STATE else MAX_VALUE_CHARS
        value = _decode(raw_value, limit)
        if value is None:
            malformed.append(name)
        elif name in _LISTS and name in seen:
            seen[name] = f"{seen[name]},{value}"
        else:
            seen.setdefault(name, value)
    if not seen and not malformed:
        return Caller()

    fields = {field: seen.get(header) for header, field in _FIELD_OF_HEADER.items()}
    for header in HEADERS_SESSION_OTHERS:
        fields["session_id"] = fields["session_id"] or seen.get(header)
    if HEADER_PROMPT in seen:
        name, at, version = seen[HEADER_PROMPT].rpartition("@")
        if at and name and version:
            fields["prompt_name"], fields["prompt_version"] = name, version
        else:
            malformed.append(HEADER_PROMPT)
    parent = None
    if HEADER_TRACE_PARENT in seen:
        parent = parse_trace_parent(seen[HEADER_TRACE_PARENT])
        if parent is None:
            malformed.append(HEADER_TRACE_PARENT)
    trace_state = seen.get(HEADER_TRACE_STATE, "") if parent is not None else ""
    knowledge: tuple[str, ...] | None = None if HEADER_KNOWLEDGE in malformed else ()
    if HEADER_KNOWLEDGE in seen and knowledge is not None:
        knowledge = parse_knowledge(seen[HEADER_KNOWLEDGE])
        if knowledge is None:
            malformed.append(HEADER_KNOWLEDGE)
    return Caller(
        **fields,
        parent=parent,
        trace_state=trace_state,
        knowledge=knowledge,
        unreadable=tuple(malformed),
    )


def parse_knowledge(value: str) -> tuple[str, ...] | None:
    """Return the sources in `name@version, name@version`, sorted; None if malformed."""
    versions: dict[str, str] = {}
    for item in value.split(","):
        name, _, version = item.strip().rpartition("@")
        if not name or not version or versions.setdefault(name, version) != version:
            return None
    return tuple(sorted(f"{name}@{version}" for name, version in versions.items()))


def parse_trace_parent(value: str) -> TraceParent | None:
    """Parse a W3C `traceparent` (version 00 and, leniently, later ones); None if malformed."""
    match = _TRACE_PARENT.fullmatch(value)
    if match is None or (match["version"] == "00" and match["more"]):
        return None
    trace_id, span_id = bytes.fromhex(match["trace"]), bytes.fromhex(match["span"])
    if not any(trace_id) or not any(span_id):
        return None
    return TraceParent(trace_id, span_id, int(match["flags"], 16))


def _decode(raw: bytes, max_chars: int) -> str | None:
    """Return the value as text, or None if it is empty, too long, or holds control characters."""
    try:
        value = raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        return None
    return value if value and len(value) <= max_chars and value.isprintable() else None
