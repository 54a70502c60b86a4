"""Reads a TOML file into a model, and says in one line what is wrong with it, and where."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from evenkeel.errors import ConfigurationError

Model = TypeVar("Model", bound=BaseModel)


def read_toml(path: Path, flag: str = "") -> dict[str, Any]:
    """Return the file's content.

    Raises:
        ConfigurationError: If it cannot be read or is not TOML; names the file and the flag.
    """
    return _parse(_text(path, flag), path, flag)


def read_toml_file(
    path: Path, model: type[Model], flag: str = "", secrets: Set[str] = frozenset()
) -> Model:
    """Return the file's content as a model.

    Args:
        path: The file.
        model: What it should hold.
        flag: Which names it on the command line, for messages.
        secrets: Keys whose values no message shows.

    Raises:
        ConfigurationError: If it cannot be read, or a key is unknown, missing or wrong; names the
            file, the line and the key.
    """
    text = _text(path, flag)
    try:
        return model.model_validate(_parse(text, path, flag))
    except ValidationError as error:
        line = _line(text, error.errors()[0]["loc"])
        problem = first_problem(error, secrets=secrets)
        raise ConfigurationError(f"{_named(path, flag, line)}: {problem}") from error


def first_problem(error: ValidationError, prefix: str = "", secrets: Set[str] = frozenset()) -> str:
    """Return in a few words what is wrong first: a key missing, unknown, or its value."""
    first = error.errors()[0]
    where = prefix + (".".join(str(part) for part in first["loc"]) or "the file")
    if first["type"] == "missing":
        return f"{where} is missing"
    if first["type"] == "extra_forbidden":
        return f"{where} is not a known key"
    what = f"{where}: {first['msg'].removeprefix('Value error, ')}"
    # Of a whole table, or of the file, the message says what does not fit.
    is_shown = isinstance(first["input"], str | int | float) and secrets.isdisjoint(first["loc"])
    return f"{what} (value {str(first['input'])[:80]!r})" if is_shown else what


def _named(path: Path, flag: str, line: int = 0) -> str:
    place = f"{path}:{line}" if line else str(path)
    return f"{place} ({flag})" if flag else place


def _text(path: Path, flag: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{_named(path, flag)} is not TOML: {error}") from error
    except OSError as error:
        raise ConfigurationError(
            f"{_named(path, flag)} cannot be read: {error.strerror}"
        ) from error


def _parse(text: str, path: Path, flag: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{_named(path, flag)} is not TOML: {error}") from error


def _line(text: str, at: Sequence[str | int]) -> int:
    """Return on which line the value at this place begins, or the innermost table around it.

    tomllib keeps no places: it is the last line that names the key and above which the file does
    not have it yet. 0 if there is none.
    """
    lines = text.splitlines()
    while at:
        name = next((part for part in reversed(at) if isinstance(part, str)), "")
        for number in range(len(lines), 0, -1):
            above = "\n".join(lines[: number - 1])
            if name in lines[number - 1] and not _holds(above, at) and _holds(text, at):
                return number
        at = at[:-1]
    return 0


def _holds(text: str, at: Sequence[str | int]) -> bool:
    """Return whether a text has a value at this place; a text that ends within one has it."""
    try:
        found: Any = tomllib.loads(text)
        for part in at:
            found = found[part]
    except tomllib.TOMLDecodeError:
        return True
    except (LookupError, TypeError):
        return False
    return True
