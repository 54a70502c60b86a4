"""Renders promptfoo texts with variables, and reads referenced files in the same folder."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel_evals.dataset.imports.entries import UnfitError, parse_json, read_utf8
from evenkeel_evals.dataset.imports.yaml_text import load_yaml

FILE = "file://"
MAX_COMBINATIONS = 1000
MAX_RENDERED = 1_000_000
_VARIABLE = re.compile(r"\{\{-?\s*([\w.-]+?)\s*-?\}\}")
_PASSES = 5


class Folder:
    """The folder of a configuration; nothing outside it is read.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    def find(self, reference: str) -> Path:
        """Return the file that `file://…` refers to.

        Raises:
            UnfitError: If it is outside the folder, or does not exist.
        """
        name = reference.removeprefix(FILE)
        try:
            found = (self.path / name).resolve()
            is_inside, is_there = found.is_relative_to(self.path), found.is_file()
        except (OSError, ValueError) as error:
            # Half a surrogate pair, a zero byte, or too long: not a possible file name.
            raise UnfitError(f"file {name!r:.80} cannot be used") from error
        if not is_inside:
            raise UnfitError(f"file {name!r:.80} is outside the configuration's folder")
        if not is_there:
            raise UnfitError(f"file {name!r:.80} does not exist")
        return found

    def load(self, reference: str) -> Any:
        """Return a file's content, parsed if it is JSON or YAML, else as text.

        Raises:
            UnfitError: If it cannot be read, or is not text.
        """
        path = self.find(reference)
        suffix = path.suffix.lower()
        try:
            if suffix == ".json":
                return parse_json(read_utf8(path), path)
            if suffix in (".yaml", ".yml"):
                return load_yaml(read_utf8(path), path)[0]
            if suffix in ("", ".txt", ".md", ".j2"):
                return read_utf8(path).removesuffix("\n")
        except ConfigurationError as error:
            raise UnfitError(str(error).replace(f"{self.path}/", "")) from error
        raise UnfitError(f"file {path.name!r:.80} is not text, JSON or YAML")


def combine(variables: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every combination of values for the variables that are lists of texts.

    Raises:
        UnfitError: If there are too many.
    """
    values = [
        value if isinstance(value, list) and value and isinstance(value[0], str) else [value]
        for value in variables.values()
    ]
    count = 1
    for members in values:
        count *= len(members)
    if count > MAX_COMBINATIONS:
        raise UnfitError(f"its variables have more than {MAX_COMBINATIONS} combinations")
    for chosen in itertools.product(*values):
        yield dict(zip(variables, chosen, strict=True))


def resolve(variables: Mapping[str, Any], folder: Folder) -> dict[str, Any]:
    """Return the variables, with files read and nested variables filled in.

    Raises:
        UnfitError: If a file cannot be read, or variables refer to each other in a loop.
    """
    known = {
        str(name): folder.load(value)
        if isinstance(value, str) and value.startswith(FILE)
        else value
        for name, value in variables.items()
    }
    for _ in range(_PASSES):
        texts = {k: v for k, v in known.items() if isinstance(v, str) and _VARIABLE.search(v)}
        if not texts:
            return known
        known = {**known, **{name: fill(text, known) for name, text in texts.items()}}
    raise UnfitError("its variables refer to each other in a loop")


def fill(template: str, variables: Mapping[str, Any]) -> str:
    """Return a text with its variables filled in.

    Raises:
        UnfitError: If a variable has no value or a non-text one, or the template does more.
    """
    if re.search(r"\{\{|\{%|\{#", _VARIABLE.sub("", template)):
        raise UnfitError("its template does more than fill in variables")
    filled = _VARIABLE.sub(lambda match: _value(match[1], variables), template)
    if len(filled) > MAX_RENDERED:
        raise UnfitError(f"a text in it is longer than {MAX_RENDERED:,} characters")
    return filled


def fill_all(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a value with variables filled in in all its texts.

    Raises:
        UnfitError: As `fill`.
    """
    if isinstance(value, str):
        return fill(value, variables)
    if isinstance(value, list):
        return [fill_all(member, variables) for member in value]
    if isinstance(value, dict):
        return {key: fill_all(member, variables) for key, member in value.items()}
    return value


def to_js_text(value: Any) -> str:
    """Return a scalar as JavaScript writes it: true, 4, 4.5.

    Raises:
        UnfitError: If it is a list or an object.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise UnfitError(f"value {str(value)!r:.40} is neither text nor a number")


def _value(name: str, variables: Mapping[str, Any]) -> str:
    if name in variables:
        value = variables[name]
    else:
        value = variables
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise UnfitError(f"has no value for the variable {name!r:.60}")
            value = value[part]
    return "" if value is None else to_js_text(value)
