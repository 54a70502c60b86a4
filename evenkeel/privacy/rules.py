"""The rules by which a secret or personal datum is told in a text, read from `rules.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

import re2
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from evenkeel.privacy.checks import CHECKS

# The check of phone numbers is built with the rule's regions (evenkeel/privacy/phone.py).
PHONE_CHECK = "phone"


class RuleKind(StrEnum):
    """What a rule finds: what opens a door, or what belongs to a person."""

    SECRET = "secret"
    PERSONAL = "personal"


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


def _is_check(name: str) -> str:
    if name not in CHECKS and name != PHONE_CHECK:
        raise ValueError(f"no such check; known: {', '.join(sorted({*CHECKS, PHONE_CHECK}))}")
    return name


Pattern = Annotated[str, AfterValidator(_compiles)]


class RulesTable(BaseModel):
    """A table of a rules file; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ValueRule(RulesTable):
    """A secret that is told by its form, wherever it stands in a text.

    Attributes:
        name: Stands in the replacement, and on `/metrics`.
        pattern: RE2 on UTF-8 bytes; the group `secret`, if any, narrows what is replaced.
        prefilter: Finds, without looking at neighbours, every text that `pattern` matches;
            derived from `pattern` where it is not given.
        check: Name of a function in `evenkeel/privacy/checks.py` that decides on each match.
        regions: For the check `phone`: countries whose national forms are looked for.
        normal: What is made equal before hashing.
        action: `drop` removes the whole attribute, `hash` and `mask` replace the match.
        kind: What it finds.
        enabled: Whether the rule is applied.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    pattern: Pattern
    prefilter: Pattern | None = None
    check: Annotated[str, AfterValidator(_is_check)] | None = None
    regions: tuple[str, ...] = ()
    normal: Normal | None = None
    action: Action
    kind: RuleKind = RuleKind.SECRET
    enabled: bool = True


def read_values() -> dict[str, Any]:
    """Return the built-in rules' fields by name."""
    text = files("evenkeel.privacy").joinpath("rules.toml").read_text(encoding="utf-8")
    tables: dict[str, Any] = tomllib.loads(text)["value"]
    return tables


@cache
def built_in_rules() -> tuple[ValueRule, ...]:
    """Return the built-in rules, those that are not enabled too."""
    return tuple(ValueRule(name=name, **fields) for name, fields in read_values().items())


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
