"""The SLO and rule templates that ship with evenkeel."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files

from evenkeel.errors import ConfigurationError
from evenkeel.known_names import suggestion

_HEAD = re.compile(r"^# template (\S+): (.*)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Template:
    """One template document and its purpose."""

    name: str
    purpose: str
    text: str


def read_templates() -> dict[str, Template]:
    """Return the templates by name, in the order of the file."""
    text = (files("evenkeel_collector.slo") / "templates.yaml").read_text(encoding="utf-8")
    heads = list(_HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return {
        head[1]: Template(head[1], head[2], _document(text[head.end() : end]))
        for head, end in zip(heads, ends, strict=True)
    }


def _document(text: str) -> str:
    return text.removesuffix("---\n").strip() + "\n"


def find_template(name: str) -> Template:
    """Return the template of that name.

    Raises:
        ConfigurationError: If there is none.
    """
    templates = read_templates()
    if name not in templates:
        raise ConfigurationError(f"no template {name!r}; {suggestion(name, templates)}")
    return templates[name]
