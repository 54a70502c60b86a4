"""Writes names and literals as ClickHouse reads them."""

from __future__ import annotations

# Bytes of a statement: the values and patterns of all objectives stand in it, several times.
MAX_QUERY_SIZE = 1 << 26


def quote(text: str) -> str:
    """Return a text as a literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quote_name(name: str) -> str:
    """Return a name as a quoted name."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"
