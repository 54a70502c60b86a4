"""Reads the redaction rules: the built-in ones, with a user's file laid over them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import re2
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from collector.redaction_checks import CHECKS
from evenkeel.errors import ConfigurationError

BUILT_IN = "redaction_rules.toml"
CONTENT = "content"
# The check of phone numbers is built with the rule's regions (collector/redaction_phone.py).
PHONE_CHECK = "phone"


class Action(StrEnum):
    """What becomes of what a rule found."""

    DROP = "drop"
    HASH = "hash"
    MASK = "mask"


class Normal(StrEnum):
    """What is made equal before hashing, so that two spellings get one token."""

    ALNUM = "alnum"  # letters and digits only, upper case
    LOWER = "lower"


def _compiles(pattern: str) -> str:
    if compile_bytes(without_anchors(pattern)).search(b"") is not None:
        raise ValueError("it matches the empty text, and so everywhere")
    compile_bytes(pattern)
    return pattern


def _is_glob(name: str) -> str:
    if len(literal_part(name)) < 3 or not name.isascii() or not name.isprintable():
        raise ValueError("expected ASCII with three characters in a row that are not *")
    return name


def _is_check(name: str) -> str:
    if name not in CHECKS and name != PHONE_CHECK:
        raise ValueError(f"no such check; known: {', '.join(sorted({*CHECKS, PHONE_CHECK}))}")
    return name


Pattern = Annotated[str, AfterValidator(_compiles)]
Glob = Annotated[str, AfterValidator(_is_glob)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ContentRule(_Table):
    """Where prompts and answers stand: globs of attribute names and of span event names."""

    names: tuple[Glob, ...]
    exceptions: tuple[Glob, ...] = Field((), alias="except")
    events: tuple[Glob, ...] = ()


class KeyRule(_Table):
    """Attributes whose name says that their value is secret."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    names: tuple[Glob, ...]
    action: Action
    enabled: bool = True


class ValueRule(_Table):
    """A secret that is told by its form, wherever it stands in a text.

    Attributes:
        name: Stands in the replacement, and on `/metrics`.
        pattern: RE2 on UTF-8 bytes; the group `secret`, if any, narrows what is replaced.
        prefilter: Finds, without looking at neighbours, every text that `pattern` matches;
            derived from `pattern` where it is not given.
        check: Name of a function in `redaction_checks` that decides on each match.
        regions: For the check `phone`: countries whose national forms are looked for.
        normal: What is made equal before hashing.
        action: `drop` removes the whole attribute, `hash` and `mask` replace the match.
        enabled: Whether the rule is applied.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    pattern: Pattern
    prefilter: Pattern | None = None
    check: Annotated[str, AfterValidator(_is_check)] | None = None
    regions: tuple[str, ...] = ()
    normal: Normal | None = None
    action: Action
    enabled: bool = True


class Rules(_Table):
    """All rules that apply, in the order of the files."""

    content: ContentRule
    keys: tuple[KeyRule, ...]
    values: tuple[ValueRule, ...]


def load_rules(path: Path | None = None) -> Rules:
    """Return the built-in rules with those of `path` laid over them, disabled ones left out.

    Raises:
        ConfigurationError: If the file cannot be read, or a rule in it is wrong.
    """
    tables = tomllib.loads(files("collector").joinpath(BUILT_IN).read_text(encoding="utf-8"))
    if path is not None:
        _lay_over(tables, _read(path), path)
    try:
        keys = [KeyRule(name=name, **fields) for name, fields in tables["key"].items()]
        values = [ValueRule(name=name, **fields) for name, fields in tables["value"].items()]
        content = ContentRule(**tables[CONTENT])
    except (ValidationError, TypeError) as error:
        raise ConfigurationError(f"{path or BUILT_IN}: {_first_line(error)}") from error
    names = [*(rule.name for rule in keys), *(rule.name for rule in values), CONTENT]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"{path or BUILT_IN}: two rules are named {name!r}")
    return Rules(
        content=content,
        keys=tuple(rule for rule in keys if rule.enabled),
        values=tuple(rule for rule in values if rule.enabled),
    )


def _first_line(error: ValidationError | TypeError) -> str:
    if isinstance(error, TypeError):
        return str(error)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{error.title} {where}: {first['msg']} (value {str(first.get('input'))[:80]!r})"


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"redaction rules {path} cannot be read: {error}") from error


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
                    known.pop("prefilter", None)  # it belonged to the pattern that is replaced
                tables[section][name] = known | fields


def compile_bytes(pattern: str) -> Any:
    """Return the pattern compiled for UTF-8 bytes by RE2, whose time is linear in the text.

    Raises:
        ValueError: If it is not ASCII, or not what RE2 accepts.
    """
    try:
        return re2.compile(pattern.encode("ascii"), _options())
    except UnicodeEncodeError as error:
        raise ValueError("a pattern must be ASCII; write \\xNN for other bytes") from error
    except re2.error as error:
        detail = error.args[0] if error.args else error
        reason = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        raise ValueError(f"not a regular expression that RE2 accepts: {reason}") from error


def compile_set(patterns: Sequence[str]) -> Any:
    """Return one search for patterns that `compile_bytes` takes: `Match` says which hit."""
    together = re2.Set.SearchSet(_options())
    for pattern in patterns:
        together.Add(pattern.encode("ascii"))
    together.Compile()
    return together


def _options() -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.max_mem = 64 << 20  # room for the automaton of all prefilters together
    return options


def without_anchors(pattern: str) -> str:
    r"""Return the pattern without ^ $ \b \B \A \z: it matches wherever the pattern matches.

    What is left does not look at neighbours, and so may be searched for in bytes in which the
    text is embedded.
    """
    result: list[str] = []
    index, in_class = 0, False
    while index < len(pattern):
        character = pattern[index]
        width = 2 if character == "\\" else 1
        piece = pattern[index : index + width]
        if in_class:
            # `]` stands for itself as the first character of a class.
            is_first = result[-1] == "[" or result[-2:] == ["[", "^"]
            in_class = character != "]" or is_first
            result.append(piece)
        elif piece in ("^", "$", "\\b", "\\B", "\\A", "\\z"):
            result.append("(?:)")
        else:
            in_class = character == "["
            result.append(piece)
        index += width
    return "".join(result)


def glob_to_pattern(glob: str) -> str:
    """Return a glob of names as a pattern: `*` is anything, `_` also `-` or nothing."""
    translated = {"*": ".*", "_": "[_-]?", "-": "[_-]?"}
    return "".join(translated.get(character) or re.escape(character) for character in glob)


def literal_part(glob: str) -> str:
    """Return the longest part of a glob between stars."""
    return max(glob.split("*"), key=len)
