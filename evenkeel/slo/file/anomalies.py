"""Reads which of the default anomaly rules are in force: anomalies.yaml has them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from evenkeel.slo.file.rule import read_rule
from evenkeel.slo.rules import Rule
from evenkeel.slo.yaml_source import Value, read_documents


@cache
def default_anomalies() -> tuple[Rule, ...]:
    """Return the rules in force unless a file turns them off."""
    rules = []
    for document in read_documents(Path(str(files("evenkeel.slo") / "anomalies.yaml"))):
        section = document.section()
        for name in ("apiVersion", "kind"):
            section.required(name)
        rules.append(read_rule(section))
    return tuple(rules)


def read_anomalies(value: Value) -> tuple[Rule, ...]:
    """Return what `anomalies` leaves: `on`, `off`, or `{off: [NAME, …]}`.

    Raises:
        ConfigurationError: On anything else, or an unknown name.
    """
    rules = default_anomalies()
    if not value.is_section:
        return rules if value.choice("on", "off") == "on" else ()
    names = [rule.name for rule in rules]
    with value.section() as section:
        off = {element.choice(*names) for element in section.required("off").listed()}
    return tuple(rule for rule in rules if rule.name not in off)
