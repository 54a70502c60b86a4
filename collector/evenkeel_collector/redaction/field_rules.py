"""Reads the redaction rules: the built-in ones, overridden by a user's file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from evenkeel.errors import ConfigurationError
from evenkeel.privacy.rules import Action, RulesTable, ValueRule, read_values
from evenkeel.toml_file import read_toml

BUILT_IN = "rules.toml"
CONTENT = "content"


def _is_glob(name: str) -> str:
    if len(literal_part(name)) < 3 or not name.isascii() or not name.isprintable():
        raise ValueError("expected ASCII with at least three consecutive characters other than *")
    return name


Glob = Annotated[str, AfterValidator(_is_glob)]


class ContentRule(RulesTable):
    """Where prompts and answers are found: globs of attribute names and event names.

    `agents` are names of log events by agents, in which `agent_names` hold content, too.
    """

    names: tuple[Glob, ...]
    exceptions: tuple[Glob, ...] = Field((), alias="except")
    events: tuple[Glob, ...] = ()
    agents: tuple[Glob, ...] = ()
    agent_names: tuple[Glob, ...] = ()


class KeyRule(RulesTable):
    """Attributes whose names mark their values as secret."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    names: tuple[Glob, ...]
    action: Action
    enabled: bool = True


class Rules(RulesTable):
    """All rules in force, in file order."""

    content: ContentRule
    keys: tuple[KeyRule, ...]
    values: tuple[ValueRule, ...]


def load_rules(path: Path | None = None) -> Rules:
    """Return the built-in rules overridden by those in `path`, without disabled ones.

    Raises:
        ConfigurationError: If the file cannot be read, or a rule in it is wrong.
    """
    tables = tomllib.loads(
        files("evenkeel_collector.redaction").joinpath(BUILT_IN).read_text(encoding="utf-8")
    )
    tables["value"] = read_values()
    if path is not None:
        _lay_over(tables, read_toml(path, is_empty_wrong=True), path)
    try:
        keys = [KeyRule(name=name, **fields) for name, fields in tables["key"].items()]
        values = [ValueRule(name=name, **fields) for name, fields in tables["value"].items()]
        content = ContentRule(**tables[CONTENT])
    except (ValidationError, TypeError) as error:
        raise ConfigurationError(f"{path or BUILT_IN}: {_problem(error)}") from error
    names = [*(rule.name for rule in keys), *(rule.name for rule in values), CONTENT]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"{path or BUILT_IN}: two rules have the name {name!r}")
    return Rules(
        content=content,
        keys=tuple(rule for rule in keys if rule.enabled),
        values=tuple(rule for rule in values if rule.enabled),
    )


def _problem(error: ValidationError | TypeError) -> str:
    if isinstance(error, TypeError):
        return str(error)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{error.title} {where}: {first['msg']} (value {str(first.get('input'))[:80]!r})"


def _lay_over(tables: dict[str, Any], added: Mapping[str, Any], path: Path) -> None:
    for section, entries in added.items():
        if section not in tables or not isinstance(entries, dict):
            raise ConfigurationError(
                f"{path}: [{section}] is unknown; use [content], [key.NAME] or [value.NAME]"
            )
        for name, fields in entries.items():
            if section == CONTENT:
                if not isinstance(fields, list):
                    raise ConfigurationError(f"{path}: content.{name} is {fields!r}, not a list")
                tables[CONTENT][name] = [*tables[CONTENT].get(name, []), *fields]
            elif not isinstance(fields, dict):
                raise ConfigurationError(f"{path}: {section}.{name} is {fields!r}, not a table")
            else:
                known = dict(tables[section].get(name, {}))
                if "pattern" in fields:
                    known.pop("prefilter", None)  # it belongs to the replaced pattern
                tables[section][name] = known | fields


def glob_to_pattern(glob: str) -> str:
    """Return a name glob as a pattern: `*` matches anything, `_` also `-` or nothing."""
    translated = {"*": ".*", "_": "[_-]?", "-": "[_-]?"}
    return "".join(translated.get(character) or re.escape(character) for character in glob)


def literal_part(glob: str) -> str:
    """Return the longest part of a glob without `*`."""
    return max(glob.split("*"), key=len)
