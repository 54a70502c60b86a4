"""Spans of a trace as the store returns them."""

import json
from collections.abc import Mapping

MS = 10**6


def span(
    span_id: str,
    parent: str = "",
    start: float = 0,
    duration: float = 1,
    name: str = "work",
    service: str = "app",
    role: str = "Internal",
    attributes: Mapping[str, str] | None = None,
    error: str = "",
    num_spans: int | None = None,
) -> dict[str, object]:
    """Return a row of `request_spans.sql`; times are in ms."""
    row: dict[str, object] = {
        "time_ns": round(start * MS),
        "span_id": span_id,
        "parent_span_id": parent,
        "name": name,
        "kind": role,
        "service": service,
        "duration_ns": round(duration * MS),
        "status_code": "Error" if error else "Unset",
        "status_message": error,
        "attributes": json.dumps(attributes or {}),
    }
    return row if num_spans is None else row | {"num_spans": num_spans}
