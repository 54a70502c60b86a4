"""What one of our own pages is asked, and what it answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

JSON = b"application/json"
Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a page that its caller may see.

    Attributes:
        method: `GET` for a `HEAD`.
        rest: What follows the page's own path, decoded, without a slash at its end.
        query: The query string, as it came.
        headers: ASGI's.
    """

    method: str
    rest: str
    query: bytes
    headers: Headers


@dataclass(frozen=True, slots=True)
class PageResponse:
    """What a page answers."""

    status: int
    body: bytes
    media_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


def answer_json(status: int, value: Any) -> PageResponse:
    """Return an answer of one JSON value."""
    return PageResponse(status, json.dumps(value).encode())


def answer_error(status: int, message: str) -> PageResponse:
    """Return an error, in the form of vLLM's own 401."""
    return answer_json(status, {"error": message})
