"""Imports CSV and JSON Lines with common column names, as on the Hugging Face Hub."""

from __future__ import annotations

import csv
import io
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel_evals.dataset.imports.conversations import ask_for_letter, split_answer, to_messages
from evenkeel_evals.dataset.imports.entries import (
    MAX_FILE_BYTES,
    ImportEntry,
    ImportSource,
    Made,
    Row,
    UnfitError,
    as_object,
    first_of,
    json_entries,
    one,
    read_utf8,
)

QUESTION_KEYS = (
    "messages",
    "input",
    "question",
    "prompt",
    "instruction",
    "problem",
    "query",
    "conversations",
    "ctx",
)
REFERENCE_KEYS = (
    "reference",
    "ideal",
    "target",
    "answer",
    "expected",
    "output",
    "answers",
    "expected_output",
    "completion",
    "solution",
    "best_answer",
    "response",
)
CHOICE_KEYS = ("choices", "options", "endings")
DELIMITERS = (",", ";", "\t")
RIGHT_KEYS = ("answer", "target", "answerKey", "label", "gold", "correct_answer")
OTHER_KEYS = ("id", "context", "tags", "scorer", "cluster_id")
_DIVIDER = re.compile(r"[\s_-]+")
# Names of the same thing.
_SYNONYMS = (
    QUESTION_KEYS,
    (*REFERENCE_KEYS, *RIGHT_KEYS),
    CHOICE_KEYS,
    *((name,) for name in OTHER_KEYS),
)


def from_csv(path: Path) -> ImportSource:
    """Read a table with a header."""
    entries = list(csv_entries(path))
    usual = _usual_names(list(dict.fromkeys(name for entry in entries for name in entry.value)))

    def convert(row: Mapping[str, Any]) -> Row:
        return plain_row({usual.get(name, name): text for name, text in row.items()})

    return ImportSource(entries, one(convert))


def _usual_names(header: Sequence[str]) -> dict[str, str]:
    """Return our names of columns as people write them, such as "Expected output".

    A column with one of our names comes before any that only resembles one of the same thing.
    """
    found: dict[str, str] = {}
    for names in _SYNONYMS:
        if not set(names).isdisjoint(header):
            continue
        usual = {name.lower(): name for name in names}
        for column in header:
            name = usual.get(_DIVIDER.sub("_", column.strip().lower()))
            if name is not None and name not in found.values():
                found[column] = name
    return found


def csv_entries(path: Path) -> Iterator[ImportEntry]:
    """Yield the rows of a table, without empty cells; a comma, semicolon or tab divides them.

    Raises:
        ConfigurationError: If it is not CSV.
    """
    csv.field_size_limit(MAX_FILE_BYTES)
    text = read_utf8(path)
    header = text.partition("\n")[0]
    # Spreadsheets divide by the semicolon where the comma is the decimal mark.
    delimiter = max(DELIMITERS, key=header.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        for row in reader:
            cells = {k: v for k, v in row.items() if k and isinstance(v, str) and v != ""}
            yield ImportEntry(path.name, reader.line_num, cells)
    except csv.Error as error:
        raise ConfigurationError(f"{path}:{reader.line_num} is not CSV: {error}") from error


def from_jsonl(path: Path) -> ImportSource:
    """Read JSON Lines or a JSON list: questions with answers, conversations, or choices."""
    entries = json_entries(read_utf8(path), path)
    offset = 1 if _counts_from_one(entries) else 0

    def convert(value: Any) -> Made:
        entry = as_object(value)
        if isinstance(entry.get("row"), dict):
            # The format in which the hub's viewer returns rows.
            entry = entry["row"]
        row = plain_row(entry, offset)
        is_counted = offset and any(is_index(entry.get(key)) for key in RIGHT_KEYS)
        notes = ["answers are counted from 1: one equals the number of choices and none is 0"]
        return Made([row], notes if is_counted and row["scorer"] == "regex" else ())

    return ImportSource(entries, convert)


def plain_row(entry: Mapping[str, Any], offset: int = 0) -> Row:
    """Return a row from columns with common names.

    Args:
        entry: The columns.
        offset: Number of the first choice.

    Raises:
        UnfitError: If it has no question or no answer.
    """
    tags = entry.get("tags", [])
    row: Row = {
        "id": entry.get("id"),
        **_asked(entry, offset),
        "tags": split_tags(tags) if isinstance(tags, str) else tags,
    }
    if entry.get("scorer"):
        row["scorer"] = entry["scorer"]
    if entry.get("cluster_id"):
        row["cluster_id"] = str(entry["cluster_id"])
    return row


def split_tags(text: str) -> list[str]:
    """Return the distinct tags of a list separated by commas."""
    return list(dict.fromkeys(tag.strip() for tag in text.split(",") if tag.strip()))


def _asked(entry: Mapping[str, Any], offset: int) -> Row:
    messages = to_messages(_question(entry))
    for key in CHOICE_KEYS:
        if isinstance(entry.get(key), list | dict):
            texts, labels = _choices(entry[key])
            right = _right(first_of(entry, RIGHT_KEYS), texts, labels, offset)
            return ask_for_letter(messages, texts, right)
    has_reference = any(entry.get(key) is not None for key in REFERENCE_KEYS)
    if not has_reference and messages[-1]["role"] == "assistant":
        messages, answer = split_answer(messages)
        return {"messages": messages, "reference": answer, "scorer": "normalised"}
    reference = _reference(first_of(entry, REFERENCE_KEYS))
    is_number = isinstance(reference, int | float) and not isinstance(reference, bool)
    scorer = "numeric" if is_number else "normalised"
    return {"messages": messages, "reference": reference, "scorer": scorer}


def _question(entry: Mapping[str, Any]) -> Any:
    if isinstance(entry.get("instruction"), str) and isinstance(entry.get("input"), str):
        parts = [entry["instruction"], entry["input"]]
        return "\n\n".join(part for part in parts if part.strip())
    question, context = first_of(entry, QUESTION_KEYS), entry.get("context")
    if isinstance(context, str) and context.strip() and isinstance(question, str):
        return f"{context}\n\n{question}"
    return question


def _reference(value: Any) -> Any:
    """Return the reference; for SQuAD's answers, their distinct texts."""
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        value = value["text"]
    if isinstance(value, list):
        if not value:
            raise UnfitError("has an empty list of answers")
        return list(dict.fromkeys(value)) if all(isinstance(t, str) for t in value) else value
    return value


def _choices(value: Any) -> tuple[list[str], list[str]]:
    """Return the texts and labels of the choices."""
    texts, labels = value, None
    if isinstance(value, dict) and "text" in value:
        texts, labels = value["text"], value.get("label")
    elif isinstance(value, dict):
        texts, labels = list(value.values()), list(value)
    elif isinstance(value, list) and value and all(isinstance(x, dict) for x in value):
        texts = [choice.get("text") for choice in value]
        labels = [choice.get("label") for choice in value]
    if not isinstance(texts, list) or not all(isinstance(t, str | int | float) for t in texts):
        raise UnfitError("its choices are not texts")
    if not isinstance(labels, list) or len(labels) != len(texts):
        labels = list(string.ascii_uppercase[: len(texts)])
    return [str(text) for text in texts], [str(label) for label in labels]


def _right(answer: Any, texts: Sequence[str], labels: Sequence[str], offset: int) -> int:
    """Return the index of the right choice, which is given as an index, label or text."""
    if isinstance(answer, int) and not isinstance(answer, bool):
        if not 0 <= answer - offset < len(texts):
            last = len(texts) - 1 + offset
            raise UnfitError(f"answer {answer} is not one of the choices {offset} to {last}")
        return answer - offset
    if not isinstance(answer, str):
        raise UnfitError(f"answer {answer!r:.40} is not one of its choices")
    found = {i for i, (a, b) in enumerate(zip(texts, labels, strict=True)) if answer in (a, b)}
    if not found and is_index(answer) and 0 <= int(answer) - offset < len(texts):
        found = {int(answer) - offset}
    if len(found) != 1:
        what = "several of its choices" if found else f"none of the choices {', '.join(labels)}"
        raise UnfitError(f"answer {answer!r:.40} is {what}")
    return found.pop()


def is_index(answer: Any) -> bool:
    """Return whether an answer is the number of a choice."""
    if isinstance(answer, str):
        return answer.isascii() and answer.isdigit() and len(answer) < 4
    return isinstance(answer, int) and not isinstance(answer, bool)


def _counts_from_one(entries: Sequence[ImportEntry]) -> bool:
    """Return whether a file counts its choices from 1: one is the last number, and none is 0."""
    has_last = False
    for entry in entries:
        try:
            value = as_object(entry.value)
            value = value["row"] if isinstance(value.get("row"), dict) else value
            choices = first_of(value, CHOICE_KEYS)
            answer = first_of(value, RIGHT_KEYS)
            texts, _ = _choices(choices)
        except UnfitError:
            continue
        if isinstance(answer, int) and not isinstance(answer, bool):
            if answer == 0:
                return False
            has_last = has_last or answer == len(texts)
    return has_last
