"""The request page's log records and events: what was logged within its trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.frame import reading

_HERE = Path(__file__).parent
Row = dict[str, Any]

_HOUR_MS = 3_600_000
MAX_RECORDS = 200
MAX_ATTRIBUTES = 8
# OpenTelemetry's severity numbers: 13 is the least WARN, 17 the least ERROR.
_WARN, _ERROR = 13, 17
HEADERS = ("after its start", "severity", "event", "text", "span", "service")


def show_logs(row: Row) -> None:
    """Draw the log records and events of a trace; `row` has its `trace_id` and start, `time_ns`."""
    at_ms = row["time_ns"] // 1_000_000
    found = reading.rows(
        _HERE / "request_logs.sql",
        {
            "trace_id": row["trace_id"],
            "from_ms": at_ms - _HOUR_MS,
            "to_ms": at_ms + _HOUR_MS,
        },
    )
    if not found:
        return
    with st.container(border=True, key="card-logs"):
        st.html(
            '<div class="ek-title">Events and logs<small>what was logged within its trace, '
            "in order</small></div>"
        )
        st.html(
            markup.table(HEADERS, log_cells(found[:MAX_RECORDS], row["time_ns"]), "Events and logs")
        )
        if len(found) > MAX_RECORDS:
            st.caption(f"The first {MAX_RECORDS:,}; the table `logs` has them all.")


def log_cells(records: Sequence[Row], arrival_ns: int) -> list[list[Cell]]:
    """Return the table's cells; a record without text shows its attributes instead."""
    return [
        [
            Cell(
                formats.signed_seconds((record["time_ns"] - arrival_ns) / 1e9),
                is_number=True,
                sorts_as=(record["time_ns"] - arrival_ns) / 1e9,
            ),
            Cell(record["severity"] or "–", level=_level(record["severity_number"])),
            Cell(record["event"] or "–"),
            Cell(_text(record), wraps=True, title=_attributes(record)),
            Cell(record["span"] or "–"),
            Cell(record["service"] or "–"),
        ]
        for record in records
    ]


def _level(severity_number: int) -> str:
    if severity_number >= _ERROR:
        return "bad"
    return "warning" if severity_number >= _WARN else ""


def _text(record: Row) -> str:
    # Agents repeat the event's name as the text.
    body = str(record["body"])
    if body and not body.endswith(record["event"] or "\0"):
        return body
    return _attributes(record) or "–"


def _attributes(record: Row) -> str:
    items = [
        f"{name}={text[:60]}"
        for name, text in record["attributes"].items()
        if not name.startswith(("event.", "evenkeel."))
    ]
    more = f" and {len(items) - MAX_ATTRIBUTES} more" if len(items) > MAX_ATTRIBUTES else ""
    return ", ".join(items[:MAX_ATTRIBUTES]) + more
