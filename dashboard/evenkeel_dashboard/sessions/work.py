"""The work of a session: its requests, the calls of its tools, and its agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from evenkeel.times import unix_ns


class WorkKind(StrEnum):
    """What a piece of work is; an agent's time is that of its requests and tools."""

    REQUEST = "request"
    TOOL = "tool"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Work:
    """One request, one call of a tool, or one run of an agent.

    Attributes:
        kind: What it is.
        start_ns: When it began, on the wall clock.
        end_ns: When it ended; not before it began.
        name: The model, the tool or the agent.
        id: Its span; empty if unknown.
        parent_id: The span that called it; empty if unknown.
        trace_id: Its trace.
        service: The service that recorded it, with a clock of its own.
        request_id: The request; empty for others.
        queue_s, prefill_s, decode_s: Seconds of a request; None if unknown.
        recompute_s: Seconds of its prefill that computed evicted tokens again; None if unknown.
        evicted_s: Seconds from that eviction to the arrival; None if unknown.
        input_tokens: Tokens in the prompt; None if unknown.
        cached_tokens: Of those, found in the prefix cache; None if unknown.
    """

    kind: WorkKind
    start_ns: int
    end_ns: int
    name: str = ""
    id: str = ""
    parent_id: str = ""
    trace_id: str = ""
    service: str = ""
    request_id: str = ""
    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    recompute_s: float | None = None
    evicted_s: float | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end_ns - self.start_ns) / 1e9

    def shifted(self, by_ns: int) -> Work:
        """Return it with both times moved."""
        return replace(self, start_ns=self.start_ns + by_ns, end_ns=self.end_ns + by_ns)


def works_of(rows: Iterable[Mapping[str, Any]]) -> list[Work]:
    """Return the work in rows of the view `session_turns`."""
    works = []
    for row in rows:
        start_ns = unix_ns(row["start"])
        works.append(
            Work(
                kind=WorkKind(row["kind"]),
                start_ns=start_ns,
                end_ns=max(start_ns, unix_ns(row["end"])),
                name=row["name"],
                id=row["span_id"],
                parent_id=row["parent_span_id"],
                trace_id=row["trace_id"],
                service=row["service"],
                request_id=row["request_id"],
                queue_s=row["queue_s"],
                prefill_s=row["prefill_s"],
                decode_s=row["decode_s"],
                recompute_s=row["recompute_s"],
                evicted_s=row["prefix_evicted_s"],
                input_tokens=row["input_tokens"],
                cached_tokens=row["cached_tokens"],
            )
        )
    return works
