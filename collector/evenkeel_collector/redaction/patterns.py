"""Patterns of attribute and event names, for one name and for a whole encoded request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evenkeel.privacy.rules import compile_bytes
from evenkeel_collector.redaction.field_rules import Rules, glob_to_pattern, literal_part


def prefilter_of(rules: Rules, of_values: str) -> str:
    """Return the pattern that finds everything in an encoded request that a rule could match.

    Args:
        rules: All rules in force.
        of_values: The pattern for the value rules; empty if there are none.
    """
    content = rules.content
    names = [*content.names, *content.agent_names]
    names += [name for rule in rules.keys for name in rule.names]
    parts = [f"(?i:{_framed(name)})" for name in names]
    parts += [f"(?i:{glob_to_pattern(literal_part(name))})" for name in content.events]
    if of_values:
        parts.append(of_values)
    return "|".join(parts)


def any_of(globs: Sequence[str]) -> Any:
    """Return one pattern for all globs, or None if there are none."""
    if not globs:
        return None
    # (?s): names may contain line breaks.
    return compile_bytes(f"(?is:{'|'.join(glob_to_pattern(glob) for glob in globs)})")


def is_in(pattern: Any, name: bytes) -> bool:
    """Whether a pattern of `any_of` matches the whole name."""
    return pattern is not None and pattern.fullmatch(name) is not None


def _framed(name: str) -> str:
    """Return a pattern that finds an attribute of this name in an encoded request.

    The key is field 1 (tag 0x0A, length, text), and the value after it is field 2 (tag 0x12): so
    `token` is found without matching every `input_tokens`.
    """
    literal = literal_part(name)
    lead = r"\n[\x00-\xff]{1,2}" if name.startswith(literal) else ""
    tail = r"\x12" if name.endswith(literal) else ""
    return lead + glob_to_pattern(literal) + tail
