"""Label matchers in Alertmanager's syntax: `slo="chat"`, `severity=~"page|ticket"`.

A missing label counts as ''. Patterns are RE2 and must match the whole value.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import re2

from evenkeel.errors import ConfigurationError

MOST_MATCHERS = 20
LONGEST_VALUE = 1_000
# The maximum number of matchers, with every character of name and value escaped.
_LONGEST_TEXT = MOST_MATCHERS * (4 * LONGEST_VALUE + 10)
# A name, quoted or not; the operator, the longest first; a value, quoted or up to a comma.
_MATCHER = re.compile(
    r'\s*(?:"(?P<quoted_name>(?:[^"\\\n]|\\.)+)"|(?P<name>[^\s"{}!=~,\\]+))\s*'
    r"(?P<operator>=~|!~|!=|=)\s*"
    r'(?:"(?P<quoted>(?:[^"\\\n]|\\.)*)"\s*)?'
)
_BARE_END = re.compile(r'[^",{}\n]*')
# Other escapes stay as they are, so that `=~"\\d+"` is a pattern.
_ESCAPE = re.compile(r'\\([n"\\])')


class Operator(StrEnum):
    """A comparison operator for labels."""

    EQUAL = "="
    NOT_EQUAL = "!="
    MATCHES = "=~"
    DIFFERS = "!~"


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on a label.

    Raises:
        ConfigurationError: If the name is empty, the value too long, or the pattern not valid RE2.
    """

    name: str
    operator: Operator
    value: str
    _pattern: Any = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > LONGEST_VALUE or len(self.value) > LONGEST_VALUE:
            raise ConfigurationError(
                f"a matcher needs a name and a value of up to {LONGEST_VALUE} characters"
            )
        if self.operator in (Operator.MATCHES, Operator.DIFFERS):
            object.__setattr__(self, "_pattern", _compile(self))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the label matches; a missing label is ''."""
        value = labels.get(self.name, "")
        match self.operator:
            case Operator.EQUAL:
                return value == self.value
            case Operator.NOT_EQUAL:
                return value != self.value
            case Operator.MATCHES:
                return self._pattern.fullmatch(value) is not None
            case Operator.DIFFERS:
                return self._pattern.fullmatch(value) is None

    def __str__(self) -> str:
        """Return the text form that `parse_matchers` reads."""
        plain = re.fullmatch(r'[^\s"{}!=~,\\]+', self.name)
        name = self.name if plain else _quoted(self.name)
        return f"{name}{self.operator.value}{_quoted(self.value)}"


def parse_matchers(texts: str | Iterable[str]) -> tuple[Matcher, ...]:
    """Parse matchers from one or more texts.

    A text is one matcher or a list such as `{slo="ttft", severity=~"page|ticket"}`; braces are
    optional, and so are the quotes around a value without a comma.

    Raises:
        ConfigurationError: If a text is not a matcher, or there are more than 20.
    """
    found: list[Matcher] = []
    for text in [texts] if isinstance(texts, str) else texts:
        if len(text) > _LONGEST_TEXT:
            raise ConfigurationError(f"matchers are longer than {_LONGEST_TEXT} characters")
        found += _parse(text)
        if len(found) > MOST_MATCHERS:
            raise ConfigurationError(f"more than {MOST_MATCHERS} matchers")
    return tuple(found)


def all_match(matchers: Iterable[Matcher], labels: Mapping[str, str]) -> bool:
    """Return whether every matcher matches; true if there are none."""
    return all(matcher.matches(labels) for matcher in matchers)


def check_selective(matchers: Sequence[Matcher]) -> None:
    """Reject matchers that would match an alert without labels: they would silence everything.

    Raises:
        ConfigurationError: If no matcher requires a label to be present.
    """
    if all_match(matchers, {}):
        raise ConfigurationError(
            "at least one matcher must require a label to be present, such as slo=~'.+'"
        )


def matchers_text(matchers: Iterable[Matcher]) -> str:
    """Format the matchers as one text that `parse_matchers` reads."""
    return ", ".join(str(matcher) for matcher in matchers)


def _parse(text: str) -> Iterable[Matcher]:
    inner = text.strip()
    if inner.startswith("{") != inner.endswith("}") or not inner.strip("{} "):
        raise _error(text)
    if inner.startswith("{"):
        inner = inner[1:-1]
    place = 0
    while place < len(inner):
        head = _MATCHER.match(inner, place)
        if head is None:
            raise _error(text)
        place = head.end()
        value = head["quoted"]
        if value is None:
            bare = _BARE_END.match(inner, place)
            assert bare is not None
            value, place = bare[0].strip(), bare.end()
        else:
            value = _unquoted(value)
        name = head["name"] or _unquoted(head["quoted_name"])
        if place < len(inner) and inner[place] != ",":
            raise _error(text)
        place += 1
        yield Matcher(name, Operator(head["operator"]), value)
        if not inner[place:].strip():
            return


def _unquoted(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)


def silence_command(slo: str) -> str:
    """Return the command that silences an SLO's alerts for an hour."""
    name = slo if re.fullmatch(r"[\w./%-]+", slo, re.ASCII) else None
    which = f"slo={name}" if name else str(Matcher("slo", Operator.EQUAL, slo[:LONGEST_VALUE]))
    return f"evenkeel alerts silence {shlex.quote(which)} --for 1h"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _error(text: str) -> ConfigurationError:
    return ConfigurationError(
        f"matcher is {json.dumps(text[:200], ensure_ascii=False)},"
        ' expected such as slo="ttft" or severity=~"page|ticket"'
    )


def _compile(matcher: Matcher) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    try:
        return re2.compile(matcher.value, options)
    except re2.error as error:
        raise ConfigurationError(
            f"{matcher}: not a valid RE2 pattern: {pattern_reason(error)}"
        ) from error


def pattern_reason(error: re2.error) -> str:
    """Return why RE2 refused a pattern, which it may say in bytes."""
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
