"""The caller of a request and its trace, as sent from the server to the exporter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TraceParent:
    """The caller's span, the parent of the request's own span.

    Attributes:
        trace_id: 16 bytes, not all zero.
        span_id: 8 bytes, not all zero.
        flags: The W3C trace flags; bit 0 is set if the caller samples this trace.
    """

    trace_id: bytes
    span_id: bytes
    flags: int


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller according to the request's headers; None for what they do not contain.

    Attributes:
        knowledge: `name@version` of each source that the answer is made from, sorted by name; None
            if the header cannot be read.
        unreadable: Names of the headers that cannot be read. Their fields are None as well, but
            such a caller must not share what is kept apart by them.
    """

    tenant: str | None = None
    session_id: str | None = None
    slo_class: str | None = None
    route: str | None = None
    prompt_name: str | None = None
    prompt_version: str | None = None
    parent: TraceParent | None = None
    trace_state: str = ""
    knowledge: tuple[str, ...] | None = ()
    unreadable: tuple[str, ...] = ()
