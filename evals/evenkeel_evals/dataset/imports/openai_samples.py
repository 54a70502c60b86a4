"""Imports samples of OpenAI's evals and of GSM8K."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenkeel_evals.dataset.imports.conversations import to_messages
from evenkeel_evals.dataset.imports.entries import (
    ImportSource,
    Row,
    UnfitError,
    first_of,
    json_entries,
    lines_of,
    one,
    read_utf8,
)
from evenkeel_evals.dataset.imports.plain import plain_row


def from_openai(path: Path) -> ImportSource:
    """Read input and ideal; like their Match, an answer is right if it starts with an ideal."""
    entries = json_entries(read_utf8(path), path)
    return ImportSource(entries, one(lambda entry: {**plain_row(entry), "scorer": "starts_with"}))


def from_gsm8k(path: Path) -> ImportSource:
    """Read GSM8K: the reference is the number after ####."""
    return ImportSource(lines_of(read_utf8(path), path), one(_gsm8k_row))


def _gsm8k_row(entry: Mapping[str, Any]) -> Row:
    found = re.search(r"####\s*(-?[\d,]+(?:\.\d+)?)\s*$", str(entry.get("answer", "")))
    if found is None:
        raise UnfitError("its answer does not end with #### and a number")
    return {
        "messages": to_messages(first_of(entry, ("question",))),
        "reference": found[1].replace(",", ""),
        "scorer": "numeric",
        "tags": ["arithmetic"],
    }
