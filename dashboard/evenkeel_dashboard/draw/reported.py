"""Distinguishes a value that a request's sender never reports from one that is merely missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenkeel.engines.reported import OURS, is_reported
from evenkeel_dashboard.draw import formats


def said(words: str, row: Mapping[str, Any], *fields: str) -> str:
    """Return a value's words, or "not reported" if its sender has none of these fields.

    Args:
        words: The words; only "no data" is replaced.
        row: A request; without `source` the words stay.
        fields: The columns that the words come from.
    """
    source = row.get("source") or OURS
    if words != formats.NO_DATA or any(is_reported(source, field) for field in fields):
        return words
    return formats.NOT_REPORTED
