"""Renders an OpenAPI document as one HTML page that loads nothing and runs no script."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from evenkeel.html_templates import html_templates

_LIMITS = {
    "minLength": "at least {} long", "maxLength": "up to {} characters", "pattern": "{}",
    "minimum": "at least {}", "maximum": "up to {}", "exclusiveMaximum": "below {}",
    "maxItems": "up to {} items",
}  # fmt: skip
# A dataclass describes its fields in its docstring.
_ATTRIBUTES = "\nAttributes:\n"
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {6,}.*)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ApiPage:
    """The page, and the headers to send with it: a policy that allows its own style sheet alone."""

    html: str
    headers: Mapping[str, str]


def render_api(document: Mapping[str, Any]) -> ApiPage:
    """Return the page for an OpenAPI document."""
    style = files(__package__).joinpath("api_page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'"
    schemas = document.get("components", {}).get("schemas", {})
    template = _environment().get_template("api_page.html.j2")
    html = template.render(api=document, schemas=schemas, style=Markup(style))
    return ApiPage(html, {"content-security-policy": policy})


@cache
def _environment() -> Environment:
    environment = html_templates("evenkeel")
    environment.filters |= {"kind": kind_of, "text": text_of, "meanings": meanings_of}
    return environment


def kind_of(schema: Mapping[str, Any]) -> str:
    """Return a description of the allowed values."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(kind_of(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(map(repr, schema["enum"]))
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        kind = f"list of {kind_of(schema['items'])}"
    elif isinstance(schema.get("additionalProperties"), Mapping):
        kind = f"object of {kind_of(schema['additionalProperties'])}"
    limits = [text.format(schema[name]) for name, text in _LIMITS.items() if name in schema]
    default = schema.get("default")
    return ", ".join([kind, *limits, *([f"default {default!r}"] if default else [])])


def text_of(schema: Mapping[str, Any]) -> str:
    """Return a model's description without that of its fields."""
    return str(schema.get("description", "")).partition(_ATTRIBUTES)[0].strip()


def meanings_of(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the meaning of each field of a model: its own, or the docstring's."""
    listed = str(schema.get("description", "")).partition(_ATTRIBUTES)[2]
    found = {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(listed)}
    return {
        name: str(field.get("description", found.get(name, "")))
        for name, field in schema.get("properties", {}).items()
    }
