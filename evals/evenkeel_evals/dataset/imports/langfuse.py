"""Imports exported Langfuse datasets: JSON Lines, a JSON list, an API response, or CSV."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenkeel_evals.dataset.imports.conversations import to_messages, to_text
from evenkeel_evals.dataset.imports.entries import (
    ImportSource,
    Made,
    Row,
    UnfitError,
    as_object,
    first_of,
    json_entries,
    read_utf8,
)
from evenkeel_evals.dataset.imports.plain import QUESTION_KEYS, csv_entries

EXPECTED_KEYS = ("expectedOutput", "expected_output", "expected")
NOTE = (
    "Langfuse does not say how outputs are judged; using 'normalised' for texts and 'json' for "
    "objects; edit `scorer` if that is wrong"
)


def from_langfuse(path: Path) -> ImportSource:
    """Read the items of a dataset."""
    is_table = path.suffix.lower() == ".csv"
    entries = csv_entries(path) if is_table else json_entries(read_utf8(path), path)
    return ImportSource(entries, lambda value: Made([_row(as_object(value))], [NOTE]))


def _row(entry: Mapping[str, Any]) -> Row:
    if str(entry.get("status", "ACTIVE")).upper() == "ARCHIVED":
        raise UnfitError("is archived")
    question = _parsed(first_of(entry, ("input",)))
    reference = _expected(_parsed(first_of(entry, EXPECTED_KEYS)))
    return {
        "id": entry.get("id"),
        "messages": to_messages(_question(question)),
        "reference": reference,
        "scorer": "json" if isinstance(reference, dict) else "normalised",
        "tags": [],
    }


def _parsed(value: Any) -> Any:
    """Return a cell, parsed if it is JSON: tables hold everything as text."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[", '"')):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _question(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    for key in QUESTION_KEYS:
        if value.get(key) is not None:
            others = [k for k in value if k != key and value[k] not in (None, "", [], {})]
            if others and key != "messages":
                raise UnfitError(f"its input has {key} and {', '.join(map(str, others))[:60]}")
            return value[key]
    if len(value) == 1:
        return next(iter(value.values()))
    raise UnfitError(f"its input has none of {', '.join(QUESTION_KEYS)}")


def _expected(value: Any) -> Any:
    if isinstance(value, int | float):
        return json.dumps(value)
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        value = value[-1]
    if isinstance(value, dict) and (text := to_text(value.get("content"))) is not None:
        return text
    if isinstance(value, dict) and len(value) == 1:
        only = next(iter(value.values()))
        return only if isinstance(only, str) else value
    return value
