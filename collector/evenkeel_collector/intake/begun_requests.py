"""Remembers when agents' requests began, for end events that do not say.

Codex CLI sends an event when an answer begins and another when it is complete, in different
requests to the collector; only the first tells when the request was sent, and in which span.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import NamedTuple

# More conversations at once forget the oldest one's request, which then has no duration.
MAX_CONVERSATIONS = 20_000
# A conversation with a longer id is not remembered.
MAX_ID = 256


class AgentConversation(NamedTuple):
    """A conversation of a tenant; two tenants may use the same id."""

    tenant: str
    id: str


@dataclass(frozen=True, slots=True)
class BegunRequest:
    """When and where a request was sent; `end_ns` once it is complete."""

    start_ns: int
    trace_id: bytes = b""
    span_id: bytes = b""
    end_ns: int | None = None


class BegunRequests:
    """The latest request of each conversation; shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: OrderedDict[AgentConversation, BegunRequest] = OrderedDict()

    def add(self, conversation: AgentConversation, request: BegunRequest) -> None:
        """Remember a conversation's request in place of its last one."""
        if max(map(len, conversation)) > MAX_ID:
            return
        with self._lock:
            if (known := self._latest.get(conversation)) and known.start_ns == request.start_ns:
                # The same event again.
                return
            self._latest[conversation] = request
            self._latest.move_to_end(conversation)
            if len(self._latest) > MAX_CONVERSATIONS:
                self._latest.popitem(last=False)

    def ended(self, conversation: AgentConversation, end_ns: int) -> BegunRequest | None:
        """Return the request that ends now; None if it is unknown or ended at another time."""
        with self._lock:
            begun = self._latest.get(conversation)
            if begun is None or begun.start_ns > end_ns or begun.end_ns not in (None, end_ns):
                return None
            self._latest[conversation] = ended = replace(begun, end_ns=end_ns)
            return ended
