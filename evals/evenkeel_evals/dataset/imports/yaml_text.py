"""Reads untrusted YAML 1.2: bounded, and with the line numbers of list elements."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from evenkeel.errors import ConfigurationError, first_line

# Nested aliases can exhaust memory: ten lines can expand to a billion values.
MAX_NODES = 1_000_000


class _Loader(yaml.SafeLoader):
    """Loader that resolves plain scalars as YAML 1.2: yes, on and 12:30 are texts, 010 is ten."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own way


_RESOLVED = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)"
        r"|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("merge", "<<", "<"),
)
for _name, _pattern, _first in _RESOLVED:
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}",
        re.compile(f"(?:{_pattern})\\Z"),
        ["" if letter == "\0" else letter for letter in _first],
    )


def _to_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(node.value)
    if len(text) > 4000:
        raise ValueError("a number is too long")
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text, 10)


_Loader.add_constructor("tag:yaml.org,2002:int", _to_int)


def load_yaml(text: str, path: Path) -> tuple[Any, yaml.Node | None]:
    """Return a document and its node tree.

    Raises:
        ConfigurationError: If it is not YAML, or expands to too many values.
    """
    try:
        tree = yaml.compose(text, Loader=_Loader)
        if tree is not None and _size(tree, {}) > MAX_NODES:
            raise ConfigurationError(f"{path} expands to more than {MAX_NODES:,} values")
        return yaml.load(text, Loader=_Loader), tree
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"{path} is not YAML: {first_line(error)}") from error
    except RecursionError as error:
        raise ConfigurationError(f"{path} is nested too deeply, or contains itself") from error


def lines_of_elements(tree: yaml.Node | None, key: str | None = None) -> list[int]:
    """Return the first line of each element of a list; with a key, of the list under that key."""
    if key is not None and isinstance(tree, yaml.MappingNode):
        # As in the loader, the last of a repeated key counts.
        tree = next((v for k, v in reversed(tree.value) if k.value == key), None)
    if not isinstance(tree, yaml.SequenceNode):
        return []
    return [element.start_mark.line + 1 for element in tree.value]


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values in a node with its aliases expanded."""
    if id(node) not in known:
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            parts = node.value
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]
