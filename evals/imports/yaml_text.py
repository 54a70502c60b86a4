"""Reads YAML from elsewhere: bounded, and with the lines at which list elements begin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from evenkeel.errors import ConfigurationError

# Aliases of aliases stand for more than memory holds: ten lines for a billion values.
MAX_NODES = 1_000_000


def load_yaml(text: str, path: Path) -> tuple[Any, yaml.Node | None]:
    """Return a document and its tree.

    Raises:
        ConfigurationError: If it is not YAML, or stands for too many values.
    """
    try:
        tree = yaml.compose(text, Loader=yaml.CSafeLoader)
        if tree is not None and _size(tree, {}) > MAX_NODES:
            raise ConfigurationError(f"{path} stands for more than {MAX_NODES:,} values")
        return yaml.load(text, Loader=yaml.CSafeLoader), tree
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"{path} is not YAML: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise ConfigurationError(f"{path} is nested too deeply, or within itself") from error


def lines_of_elements(tree: yaml.Node | None, key: str | None = None) -> list[int]:
    """Return the line at which each element of a list begins; of a key that is given, its list."""
    if key is not None and isinstance(tree, yaml.MappingNode):
        # As the loader has it: of a key that is repeated the last one counts.
        tree = next((v for k, v in reversed(tree.value) if k.value == key), None)
    if not isinstance(tree, yaml.SequenceNode):
        return []
    return [element.start_mark.line + 1 for element in tree.value]


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node stands for when its aliases are written out."""
    if id(node) not in known:
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            parts = node.value
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]
