"""Reads a TOML file into a model; errors say in one line what is wrong and where."""

from __future__ import annotations

import math
import tomllib
from bisect import bisect_left
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from evenkeel.errors import ConfigurationError

Model = TypeVar("Model", bound=BaseModel)


def read_toml(path: Path, flag: str = "", is_empty_wrong: bool = False) -> dict[str, Any]:
    """Return the file's content.

    Raises:
        ConfigurationError: If it cannot be read, is not TOML, is wrongly empty, or holds a number
            that is not finite or too large; names the file and the flag.
    """
    text = _text(path, flag)
    content = _parse(text, path, flag)
    if is_empty_wrong:
        _refuse_empty(text, path, flag)
    return content


def read_toml_file(
    path: Path, model: type[Model], flag: str = "", secrets: Set[str] = frozenset()
) -> Model:
    """Return the file's content as a model.

    Args:
        path: The file.
        model: The model to validate it against.
        flag: The flag that names the file, for messages.
        secrets: Keys whose values must not appear in messages.

    Raises:
        ConfigurationError: If it cannot be read or is empty, or a key is unknown, missing or wrong;
            names the file, the line and the key.
    """
    text = _text(path, flag)
    try:
        content = model.model_validate(_parse(text, path, flag))
    except ValidationError as error:
        line = line_of(text, error.errors()[0]["loc"])
        problem = first_problem(error, secrets=secrets)
        raise ConfigurationError(f"{_named(path, flag, line)}: {problem}") from error
    _refuse_empty(text, path, flag)
    return content


def _refuse_empty(text: str, path: Path, flag: str) -> None:
    if not text.strip():
        # All keys may have defaults, but nobody means an empty file.
        raise ConfigurationError(f"{_named(path, flag)} is empty")


def first_problem(error: ValidationError, prefix: str = "", secrets: Set[str] = frozenset()) -> str:
    """Describe the first problem briefly: a missing or unknown key, or a wrong value."""
    first = error.errors()[0]
    where = prefix + (".".join(str(part) for part in first["loc"]) or "the file")
    if first["type"] == "missing":
        return f"{where} is missing"
    if first["type"] == "extra_forbidden":
        return f"{where} is not a known key"
    if first["type"] in ("tuple_type", "list_type") and isinstance(first["input"], dict):
        return f"{where} is one table, expected a list; tables in a list begin with [[{where}]]"
    what = f"{where}: {first['msg'].removeprefix('Value error, ')}"
    # For a whole table, or the file, the message says what does not fit.
    is_shown = isinstance(first["input"], str | int | float) and secrets.isdisjoint(first["loc"])
    return f"{what} (value {str(first['input'])[:80]!r})" if is_shown else what


def _named(path: Path, flag: str, line: int = 0) -> str:
    place = f"{path}:{line}" if line else str(path)
    return f"{place} ({flag})" if flag else place


def _text(path: Path, flag: str) -> str:
    try:
        # Some editors begin a file with a byte order mark.
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{_named(path, flag)} is not TOML: {error}") from error
    except OSError as error:
        raise ConfigurationError(
            f"{_named(path, flag)} cannot be read: {error.strerror}"
        ) from error


def _parse(text: str, path: Path, flag: str) -> dict[str, Any]:
    try:
        content = tomllib.loads(text)
        unusable = _find_unusable(content)
    except RecursionError as error:
        raise ConfigurationError(f"{_named(path, flag)} is nested too deeply") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{_named(path, flag)} is not TOML: {error}") from error
    except ValueError as error:  # Python's limit on reading and writing whole numbers.
        raise ConfigurationError(
            f"{_named(path, flag)} has a number of thousands of digits"
        ) from error
    if unusable is not None:
        at, problem = unusable
        key = ".".join(str(part) for part in at)
        raise ConfigurationError(f"{_named(path, flag, line_of(text, at))}: {key} is {problem}")
    return content


def _find_unusable(content: Any) -> tuple[tuple[str | int, ...], str] | None:
    """Return the location of a number that cannot be calculated with, if any, and what it is.

    One written in hexadecimal may have any size, and then not even a message could show it.
    """
    if isinstance(content, float):
        return None if math.isfinite(content) else ((), f"{content}, expected a finite number")
    if isinstance(content, int):
        # TOML 1.0 requires these, and an error for others.
        return None if -(2**63) <= content < 2**63 else ((), "an integer of more than 64 bits")
    parts: Iterable[tuple[str | int, Any]] = ()
    if isinstance(content, dict):
        parts = content.items()
    elif isinstance(content, list):
        parts = enumerate(content)
    for key, value in parts:
        found = _find_unusable(value)
        if found is not None:
            return (key, *found[0]), found[1]
    return None


def line_of(text: str, at: Sequence[str | int]) -> int:
    """Return the line where the value at this location starts, or its innermost table.

    tomllib keeps no positions, so this finds the shortest prefix of the file that already contains
    the value. 0 if there is none.
    """
    lines, whole = text.split("\n"), tomllib.loads(text)
    while at and not _holds(whole, at):
        at = at[:-1]
    if not at:
        return 0
    end = bisect_left(range(len(lines)), True, key=lambda n: _holds(_readable(lines, n)[1], at))
    return _readable(lines, end - 1)[0] + 1


def _readable(lines: Sequence[str], number: int) -> tuple[int, dict[str, Any]]:
    """Return the longest prefix of the lines that ends with a whole value, and its content."""
    while True:
        try:
            return number, tomllib.loads("\n".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            number -= 1


def _holds(content: Any, at: Sequence[str | int]) -> bool:
    try:
        for part in at:
            content = content[part]
    except (LookupError, TypeError):
        return False
    return True
