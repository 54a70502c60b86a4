"""Writes names and literals as ClickHouse reads them."""

from __future__ import annotations


def quote(text: str) -> str:
    """Return a text as a literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quote_name(name: str) -> str:
    """Return a name as a quoted name."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"
