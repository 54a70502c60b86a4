"""Shared code of the importers: entries, rows, and the error for entries that do not fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenkeel.errors import ConfigurationError

Row = dict[str, Any]
MAX_FILE_BYTES = 256 * 1024 * 1024
# Named in a message about a name that is missing.
_MOST_NAMES = 8


class UnfitError(Exception):
    """An entry cannot become an item; the message says why."""


@dataclass(frozen=True, slots=True)
class ImportEntry:
    """One entry of a source file.

    Attributes:
        file: Name of its file.
        line: Its first line, from 1; its number if the format has no lines.
        value: The parsed entry, or the text of a JSON object.
    """

    file: str
    line: int
    value: Any

    @property
    def place(self) -> str:
        """Return `file:line`."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Made:
    """The result of converting one entry.

    Attributes:
        rows: Rows of the dataset; an entry may give several.
        notes: Differences in judging from the source tool.
        files: Contents of files to write next to the dataset, by name.
    """

    rows: Sequence[Row]
    notes: Sequence[str] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImportSource:
    """Another tool's file, ready to convert.

    Attributes:
        entries: Its entries, in file order.
        convert: Converts an entry's parsed value to rows, or raises UnfitError.
        problems: Skipped parts other than entries.
        has_names: Whether ids are names that may repeat; a number makes them unique.
    """

    entries: Iterable[ImportEntry]
    convert: Callable[[Any], Made]
    problems: Sequence[str] = ()
    has_names: bool = False


def one(convert: Callable[[Mapping[str, Any]], Row]) -> Callable[[Any], Made]:
    """Return a converter that makes one row of each object."""
    return lambda value: Made([convert(as_object(value))])


def read_bytes(path: Path) -> bytes:
    """Return the content of a file as bytes.

    Raises:
        ConfigurationError: If it cannot be read, or is too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigurationError(f"{path} is larger than {MAX_FILE_BYTES // 2**20} MiB; split it")
    return content


def read_utf8(path: Path) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        ConfigurationError: If it cannot be read, is too large, or is not UTF-8.
    """
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8: {error.reason}") from error


def lines_of(text: str, path: Path) -> list[ImportEntry]:
    """Return an entry per line that is not blank."""
    lines = enumerate(text.split("\n"), start=1)
    return [ImportEntry(path.name, number, line) for number, line in lines if line.strip()]


def json_entries(text: str, path: Path) -> list[ImportEntry]:
    """Return the entries of JSON Lines, a JSON list, or an object with `data` or `rows`.

    Raises:
        ConfigurationError: If it begins like a JSON list but is not one.
    """
    if not text.lstrip().startswith("["):
        lines = lines_of(text, path)
        first = _parsed(lines[0].value) if lines else None
        if (isinstance(first, dict) and len(lines) == 1) or first is None:
            whole = _parsed(text)
            for key in ("data", "rows", "items"):
                if isinstance(whole, dict) and isinstance(whole.get(key), list):
                    return [ImportEntry(path.name, i, x) for i, x in enumerate(whole[key], start=1)]
        return lines
    listed = parse_json(text, path)
    return [ImportEntry(path.name, i, value) for i, value in enumerate(listed, start=1)]


def parse_json(text: str, path: Path) -> Any:
    """Return parsed JSON.

    Raises:
        ConfigurationError: If it is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not JSON: {error}") from error


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def as_object(value: Any) -> Mapping[str, Any]:
    """Return an entry as an object.

    Raises:
        UnfitError: If it is not an object.
    """
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError) as error:
        raise UnfitError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UnfitError("is not an object")
    return found


def first_of(entry: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the value of the first of these keys that is present.

    Raises:
        UnfitError: If none is.
    """
    for name in names:
        if entry.get(name) is not None:
            return entry[name]
    seen = ", ".join(f"{name!r:.40}" for name in list(entry)[:_MOST_NAMES])
    raise UnfitError(f"has none of {', '.join(names)}, only {seen or 'nothing'}")
