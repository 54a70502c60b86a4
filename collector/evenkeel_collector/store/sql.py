"""Quotes names and literals for ClickHouse."""

from __future__ import annotations

# Bytes per statement: it repeats the values and patterns of all objectives several times.
MAX_QUERY_SIZE = 1 << 26


def quote(text: str) -> str:
    """Return a string as a literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quote_name(name: str) -> str:
    """Return a name in quotes."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"
