"""Imports conversations in `messages` that end with the answer, as used for fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenkeel_evals.dataset.imports.conversations import split_answer, to_messages
from evenkeel_evals.dataset.imports.entries import (
    ImportSource,
    Row,
    first_of,
    json_entries,
    one,
    read_utf8,
)


def from_chat(path: Path) -> ImportSource:
    """Read conversations: the last answer is the reference, the rest is the question."""
    return ImportSource(json_entries(read_utf8(path), path), one(_chat_row))


def _chat_row(entry: Mapping[str, Any]) -> Row:
    turns = to_messages(first_of(entry, ("messages", "conversations", "conversation")))
    messages, answer = split_answer(turns)
    return {
        "id": entry.get("id"),
        "messages": messages,
        "reference": answer,
        "scorer": "normalised",
        "tags": [],
    }
