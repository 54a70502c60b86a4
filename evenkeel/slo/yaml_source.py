"""Reads YAML strictly: every error names file, line and value; unknown and repeated keys fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml

from evenkeel.durations import parse_duration_s
from evenkeel.errors import ConfigurationError, first_line

_MAX_BYTES = 1 << 20
_EMPTY = "tag:yaml.org,2002:null"
# Plain decimal digits only: 010 and 1_000 mean something else to other parsers and stay text.
_PLAIN_NUMBER = re.compile(r"[+-]?(0|[1-9]\d{0,17})(\.\d{1,17})?([eE][+-]?\d{1,2})?", re.ASCII)
# Numbers, booleans and null, which are written back the same way.
_AS_WRITTEN = re.compile(r"(0|[1-9]\d{0,14})(\.\d{0,14}[1-9]|\.0)?|true|false|null|", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ZERO = re.compile(r"0(\.0+)?(ms|[smhdw])?", re.ASCII)
# What to do about the parser's most frequent complaints.
_REMEDIES = (
    (r"\t", "indent with spaces"),
    ("mapping values are not allowed", "check the indentation here and above"),
    ("<block end>", "check the indentation here and above"),
)
# Counted as a parser meets them: aliased values count again.
_MAX_NODES = 100_000
_MAX_DEPTH = 64
Word = TypeVar("Word", bound=str)
Result = TypeVar("Result")
Default = TypeVar("Default")
P = ParamSpec("P")
# Limits for decimals and ratios: an exponent of nine digits would be expanded in full.
_NUMBER = re.compile(
    r"[+-]?(\d{1,18}(\.\d{0,30})?([eE][+-]?\d{1,2})?|\d{1,150}/\d{1,150})", re.ASCII
)


class Value:
    """One YAML node and its location.

    Args:
        node: The node.
        path: The file, for messages.
        name: The node's name in messages, such as `target`.
        subject: What it belongs to, such as `SLO 'chat-ttft'`; prefixes messages.
    """

    def __init__(self, node: yaml.Node, path: Path, name: str, subject: str = "") -> None:
        self.node, self.path, self.name, self.subject = node, path, name, subject

    def error(self, expected: str) -> ConfigurationError:
        """Return the error "name is value, expected …"."""
        return self.complaint(f"{self.name} is {self._shown()}, expected {expected}")

    def complaint(self, message: str, key: str | None = None) -> ConfigurationError:
        """Return an error that ends with the file and the line of this value, or of a key in it."""
        prefix = f"{self.subject}: " if self.subject else ""
        place = self if key is None else self.at(key) or self
        return ConfigurationError(
            f"{prefix}{message} ({self.path}:{place.node.start_mark.line + 1})"
        )

    def text(self) -> str:
        """Return a non-empty string; numbers count as text, as in `version: 2`."""
        if not isinstance(self.node, yaml.ScalarNode) or not self.node.value.strip():
            raise self.error("text")
        return str(self.node.value)

    def number(
        self, expected: str, is_good: Callable[[Fraction], bool] = lambda _: True
    ) -> Fraction:
        """Return a number exactly as written; `expected` describes it in the error."""
        try:
            if isinstance(self.node, yaml.ScalarNode) and _NUMBER.fullmatch(self.node.value):
                number = Fraction(self.node.value)
                if is_good(number):
                    return number
        except ZeroDivisionError:
            pass
        raise self.error(expected)

    def duration_s(self) -> Fraction:
        """Return the seconds of a duration."""
        try:
            return parse_duration_s(self.text())
        except ConfigurationError:
            raise self.error("a duration such as 30d, 1h, 5m, 90s or 250ms") from None

    def duration_or_zero_s(self) -> Fraction:
        """Return the seconds of a duration that may be 0, with or without a unit."""
        is_zero = isinstance(self.node, yaml.ScalarNode) and _ZERO.fullmatch(self.node.value)
        return Fraction(0) if is_zero else self.duration_s()

    def zone(self) -> ZoneInfo:
        """Return a time zone by its name."""
        try:
            return ZoneInfo(self.text())
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise self.error("an IANA time zone such as Europe/Berlin") from None

    def choice(self, *allowed: Word) -> Word:
        """Return one of the allowed words, or the enumeration member with that value."""
        for word in allowed:
            if word == self.node.value:
                return word
        raise self.error(" or ".join(allowed))

    def flag(self) -> bool:
        """Return this as a boolean."""
        return self.choice("true", "false") == "true"

    def listed(self) -> list[Value]:
        """Return the elements of a list, or a single value as its only element."""
        return list(self.items()) if self.is_list else [self]

    def texts(self) -> tuple[str, ...]:
        """Return a list of texts."""
        return self.each(Value.text)

    def each(self, read: Callable[[Value], Result]) -> tuple[Result, ...]:
        """Return a list, each element as `read` returns it."""
        return tuple(read(element) for element in self.items())

    def by_key(self) -> dict[str, Value]:
        """Return everything in a mapping."""
        return self.section().left

    def text_by_key(self) -> dict[str, str]:
        """Return a mapping with text under every key."""
        return {name: value.text() for name, value in self.by_key().items()}

    def items(self) -> Iterator[Value]:
        """Yield the elements of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.error("a list")
        for index, node in enumerate(self.node.value):
            yield Value(node, self.path, f"{self.name}[{index}]", self.subject)

    def at(self, *names: str) -> Value | None:
        """Return the value at these nested keys; None if one is absent."""
        found = self
        for name in names:
            if not isinstance(found.node, yaml.MappingNode):
                return None
            nodes = [node for key, node in found.node.value if key.value == name]
            if not nodes:
                return None
            found = Value(nodes[0], self.path, name, self.subject)
        return found

    @property
    def is_list(self) -> bool:
        """Whether this is a list."""
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def is_section(self) -> bool:
        """Whether this is a mapping."""
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_empty(self) -> bool:
        """Whether the value is empty."""
        return bool(self.node.tag == _EMPTY)

    def plain(self, is_exact: bool = False) -> Any:
        """Return plain lists, dictionaries, text, numbers and None, to be written as YAML.

        Dates, and values YAML has no plain form for, stay text; with `is_exact`, so do values
        that would be written differently, such as 1.10 and yes.
        """
        if isinstance(self.node, yaml.MappingNode):
            return {
                str(key.value): Value(node, self.path, self.name).plain(is_exact)
                for key, node in self.node.value
            }
        if isinstance(self.node, yaml.SequenceNode):
            return [Value(node, self.path, self.name).plain(is_exact) for node in self.node.value]
        text = str(self.node.value)
        if is_exact and not _AS_WRITTEN.fullmatch(text):
            return text
        match self.node.tag.rpartition(":")[2]:
            case "null":
                return None
            case "bool":
                return text.lower() in ("true", "yes", "on", "y")
            case "int" | "float" if _PLAIN_NUMBER.fullmatch(text):
                return float(text) if set(text) & set(".eE") else int(text)
        return text

    def embedded(self) -> list[Value]:
        """Return the YAML documents in this text; errors name this text's line.

        Raises:
            ConfigurationError: If the text is not YAML or too large.
        """
        values = _compose(self.text(), self.path)
        for value in values:
            for node in _each_node(value.node, value.path):
                node.start_mark = self.node.start_mark
            value.subject = self.subject
        return values

    def section(self) -> Section:
        """Return this mapping, for taking its keys one by one."""
        return Section(self)

    def _shown(self) -> str:
        if isinstance(self.node, yaml.ScalarNode):
            is_text = self.node.tag == "tag:yaml.org,2002:str"
            return repr(self.node.value) if is_text else (str(self.node.value) or "empty")
        return "a list" if isinstance(self.node, yaml.SequenceNode) else "a mapping"


class Section:
    """A mapping whose keys are taken one by one; leaving the `with` block rejects the rest.

    Raises:
        ConfigurationError: If the value is not a mapping, or a key is repeated or empty.
    """

    def __init__(self, value: Value) -> None:
        if not value.is_section:
            raise value.error("a mapping")
        self.value = value
        self.left: dict[str, Value] = {}
        # In message order; a key may be taken on a second try.
        self._known: dict[str, None] = {}
        for key, node in value.node.value:
            name = str(key.value)
            at_key = Value(key, value.path, name, value.subject)
            if not isinstance(key, yaml.ScalarNode) or not name.strip():
                raise at_key.complaint("a key must be a word")
            if name in self.left:
                is_next = name in ("apiVersion", "kind")
                remedy = ": a line --- separates documents" if is_next else ""
                raise at_key.complaint(f"{name} appears twice{remedy}")
            self.left[name] = Value(node, value.path, name, value.subject)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def close(self) -> None:
        """Reject keys that were not taken.

        Raises:
            ConfigurationError: If a key is left; names the ones that exist.
        """
        for name, value in self.left.items():
            value.subject = self.value.subject
            raise value.complaint(
                f"{name} is not a key of {self.value.name}; known: {', '.join(self._known)}"
            )

    def optional(self, name: str) -> Value | None:
        """Take an optional key."""
        self._known[name] = None
        return self.left.pop(name, None)

    def required(self, name: str) -> Value:
        """Take a required key."""
        value = self.optional(name)
        if value is None:
            raise self.value.complaint(f"{name} is missing from {self.value.name}")
        return value

    def read(
        self,
        name: str,
        read: Callable[Concatenate[Value, P], Result],
        *args: P.args,
        **named: P.kwargs,
    ) -> Result:
        """Take a required key, as `read` returns it."""
        return read(self.required(name), *args, **named)

    def read_or(
        self,
        name: str,
        default: Default,
        read: Callable[Concatenate[Value, P], Result],
        *args: P.args,
        **named: P.kwargs,
    ) -> Result | Default:
        """Take an optional key, as `read` returns it, or the default."""
        value = self.optional(name)
        return default if value is None else read(value, *args, **named)


def read_documents(path: Path) -> list[Value]:
    """Return the documents of a YAML file, without empty ones.

    Raises:
        ConfigurationError: If the file cannot be read, is over 1 MiB, is not YAML, or is
            nested too deeply.
    """
    try:
        content = path.read_bytes()
        if len(content) > _MAX_BYTES:
            raise ConfigurationError(f"{path} has {len(content)} bytes, more than 1 MiB")
        return _compose(content.decode("utf-8"), path)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {first_line(error)}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path} is not UTF-8: byte {error.object[error.start]:#x} at {error.start}"
        ) from error


def _compose(text: str, path: Path) -> list[Value]:
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = str(error.problem)
        remedy = next((f": {remedy}" for part, remedy in _REMEDIES if part in problem), "")
        raise ConfigurationError(f"{path.name} is not YAML: {problem}{remedy} ({where})") from error
    except RecursionError as error:
        raise ConfigurationError(f"{path} is nested too deeply") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is not YAML: {first_line(error)}") from error
    values = [
        Value(node, path, "the document")
        for node in nodes
        if node is not None and node.tag != _EMPTY
    ]
    num_nodes = 0
    for value in values:
        for node in _each_node(value.node, value.path):
            num_nodes += 1
            if isinstance(node, yaml.ScalarNode) and _SURROGATE.search(node.value):
                node.value = _joined(Value(node, path, "the text", value.subject))
            if num_nodes > _MAX_NODES:
                raise value.complaint(
                    f"aliases included, the file has more than {_MAX_NODES} values; split it"
                )
    return values


def _joined(value: Value) -> str:
    """Return a text with JSON's surrogate pairs joined into characters.

    Raises:
        ConfigurationError: If a surrogate is unpaired: no output format accepts it.
    """
    try:
        return str(value.node.value).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise value.complaint(
            "the text has half a surrogate pair, such as \\ud83d alone"
        ) from error


def _each_node(root: yaml.Node, path: Path) -> Iterator[yaml.Node]:
    """Yield every node each time it occurs.

    Raises:
        ConfigurationError: If one is nested too deeply, as with an alias of itself.
    """
    left = [(root, 0)]
    while left:
        node, depth = left.pop()
        if depth > _MAX_DEPTH:
            raise ConfigurationError(
                f"nested too deeply, more than {_MAX_DEPTH} levels ({path}:"
                f"{node.start_mark.line + 1})"
            )
        yield node
        if isinstance(node, yaml.MappingNode):
            left += [(inner, depth + 1) for pair in node.value for inner in pair]
        elif isinstance(node, yaml.SequenceNode):
            left += [(inner, depth + 1) for inner in node.value]
