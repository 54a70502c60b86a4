"""Parses the explore page's filter bounds, and writes its downloads."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from evenkeel.outside_text import for_spreadsheet
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.markup import Cell, page_link

ORDERS = {
    "time": "newest",
    "ttft": "TTFT",
    "e2e": "total",
    "stall": "stall",
    "input": "input tokens",
    "output": "output tokens",
    "reasoning": "reasoning tokens",
    "repeated": "repetition",
}
ANSWERS = {"": "all", "empty": "empty", "failed_tools": "tool call did not parse"}
STATUSES = {"": "all", "ok": "ok", "error": "error", "aborted": "aborted", "shed": "shed"}
# The columns of a request's row that the store can order by.
_ORDER_OF = {"TTFT": "ttft", "total": "e2e", "input": "input", "output": "output"}
_NESTED = (dict, list, tuple, np.ndarray)
_UNITS = (("ms", 1e-3), ("min", 60.0), ("k", 1e3), ("s", 1.0))
_REASON = re.compile(
    r"DB::Exception: (.*?)(?: \(version [^)]*\))?(?: \(for url [^)]*\))?$", re.DOTALL
)


def bound(text: str) -> float | None:
    """Parse a typed number such as 500ms, 1.5 s, 2k or 300; 0 for empty text.

    None if it is not a number.
    """
    cleaned = text.strip().lower().replace(",", "")
    if not cleaned:
        return 0.0
    factor = 1.0
    for unit, size in _UNITS:
        if cleaned.endswith(unit):
            cleaned, factor = cleaned.removesuffix(unit).strip(), size
            break
    try:
        value = float(cleaned) * factor
    except ValueError:
        return None
    return value if 0 <= value < 1e12 else None


def ordering_headers(headers: Sequence[str], params: Mapping[str, str]) -> list[str | Cell]:
    """Return the headers of a page of requests, linked to the page ordered by that column.

    Args:
        headers: The headers; the second is the arrival.
        params: The parameters of the page's URL.
    """
    found: list[str | Cell] = []
    now = params.get("order", "time")
    for number, header in enumerate(headers):
        order = "time" if number == 1 else _ORDER_OF.get(header)
        if order is None:
            found.append(Cell(header))
            continue
        linked = {k: v for k, v in params.items() if k != "page"} | {"order": order}
        mark = " ▼" if order == now else ""
        found.append(Cell(header + mark, href=page_link("explore", linked)))
    return found


def csv_bytes(frame: pd.DataFrame) -> bytes:
    """Return a frame as UTF-8 CSV, with text escaped so that spreadsheets run no formulas.

    Lists and maps are JSON.
    """
    safe = frame.copy()
    for name in safe.columns:
        if safe[name].dtype == object or str(safe[name].dtype).startswith("str"):
            safe[name] = safe[name].map(_json_if_nested).map(for_spreadsheet)
    text: str = safe.to_csv(index=False)
    return text.encode()


def parquet_bytes(frame: pd.DataFrame) -> bytes:
    """Return a frame as Parquet.

    Lists and maps are JSON, as not all of them can be written. A column that has no type in
    Parquet is text: addresses, integers beyond 64 bits, values of several types.
    """
    plain = frame.copy()
    for name in plain.columns:
        if plain[name].dtype == object:
            plain[name] = _writable(plain[name])
    buffer = io.BytesIO()
    plain.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _writable(column: pd.Series[Any]) -> pd.Series[Any]:
    if any(isinstance(value, _NESTED) for value in column):
        column = column.map(_json_if_nested)
    try:
        pa.array(column, from_pandas=True)
    except (pa.ArrowException, OverflowError):
        return column.map(str, na_action="ignore")
    return column


def _json_if_nested(value: Any) -> Any:
    if not isinstance(value, _NESTED):
        return value
    return json.dumps(_finite(_plain(value)), ensure_ascii=False, default=str)


def _finite(value: Any) -> Any:
    """Return a plain value without infinities, which JSON does not have: they are null."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and math.isinf(value) else value


def _plain(value: Any) -> Any:
    """Return a value of a user's own query in Python's own types; a missing one is None."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    # NaN is the only value that differs from itself.
    return None if value is pd.NA or value is pd.NaT or value != value else value


def refusal_words(message: str) -> str:
    """Return why the store refused a query, without the boilerplate of its message."""
    found = _REASON.search(message)
    return message if found is None else f"The query was refused: {found[1].strip()}"


def cell_words(value: Any) -> str:
    """Return a value of a user's own query as text."""
    if isinstance(value, dict):
        parts = (f"{key}: {cell_words(each)}" for key, each in _plain(value).items())
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, _NESTED):
        return f"[{', '.join(map(cell_words, _plain(value)))}]"
    if value is None:
        return formats.NO_DATA
    if isinstance(value, float):
        return formats.three_digits(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return formats.exact(value)
    return str(value)
