"""The rules that recognise secrets and personal data in a text, read from `rules.toml`."""

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

# The phone check is built from the rule's regions (evenkeel/privacy/phone.py).
PHONE_CHECK = "phone"


class RuleKind(StrEnum):
    """What a rule finds: a credential, or personal data."""

    SECRET = "secret"
    PERSONAL = "personal"


class Action(StrEnum):
    """What to do with a match."""

    DROP = "drop"
    HASH = "hash"
    MASK = "mask"


class Normal(StrEnum):
    """How a match is normalised before hashing, so that two spellings get one token."""

    ALNUM = "alnum"  # letters and digits only, upper case
    LOWER = "lower"


def _compiles(pattern: str) -> str:
    if compile_bytes(without_anchors(pattern)).search(b"") is not None:
        raise ValueError("it matches the empty string, and so every text")
    compile_bytes(pattern)
    return pattern


def _is_check(name: str) -> str:
    if name not in CHECKS and name != PHONE_CHECK:
        raise ValueError(f"no such check; known: {', '.join(sorted({*CHECKS, PHONE_CHECK}))}")
    return name


Pattern = Annotated[str, AfterValidator(_compiles)]


class RulesTable(BaseModel):
    """A table in a rules file; unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ValueRule(RulesTable):
    """A rule for secrets that are recognisable by their form anywhere in a text.

    Attributes:
        name: Appears in the replacement and on `/metrics`.
        pattern: RE2 on UTF-8 bytes; the group `secret`, if any, narrows what is replaced.
        prefilter: Matches, without context, every text that `pattern` matches; derived from
            `pattern` by default.
        check: Name of a function in `evenkeel/privacy/checks.py` that decides on each match.
        regions: For the check `phone`: countries whose national formats are recognised.
        normal: The normalisation before hashing.
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
    """Return the built-in rules, including disabled ones."""
    return tuple(ValueRule(name=name, **fields) for name, fields in read_values().items())


def compile_bytes(pattern: str) -> Any:
    """Return the pattern compiled for UTF-8 bytes by RE2, which runs in linear time.

    Raises:
        ValueError: If it is not ASCII, or RE2 does not accept it.
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
    """Return one search over several patterns for `compile_bytes`; `Match` returns which hit."""
    together = re2.Set.SearchSet(_options())
    for pattern in patterns:
        together.Add(pattern.encode("ascii"))
    together.Compile()
    return together


def _options() -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.max_mem = 64 << 20  # memory for the combined automaton of all prefilters
    return options


def without_anchors(pattern: str) -> str:
    r"""Return the pattern without ^ $ \b \B \A \z: it matches wherever the pattern matches.

    The result does not depend on context, so it can be searched for in bytes that embed the
    text.
    """
    result: list[str] = []
    index, in_class = 0, False
    while index < len(pattern):
        character = pattern[index]
        width = 2 if character == "\\" else 1
        piece = pattern[index : index + width]
        if in_class:
            # `]` is literal as the first character of a class.
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
