"""An OpenAPI document as a plain page: no script, no style, nothing from another host."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_HEAD = '<!doctype html><html lang="en"><meta charset="utf-8">'


def write_reference(document: Mapping[str, Any]) -> str:
    """Return the page: each operation with its parameters and responses, then the schemas."""
    title = escape(document["info"]["title"])
    parts = [f"{_HEAD}<title>{title}</title><h1>{title}</h1>"]
    parts.append('<p>Machine-readable: <a href="openapi.json">openapi.json</a>.</p>')
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(f"<h2>{escape(method.upper())} {escape(path)}</h2>")
            parts.extend(_write_operation(operation))
    for name, schema in document.get("components", {}).get("schemas", {}).items():
        parts.append(f'<h2 id="{escape(name)}">{escape(name)}</h2>{_write_schema(schema)}')
    return "\n".join(parts)


def _write_operation(operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<p>{escape(operation.get('description', ''))}</p>"
    if operation.get("security"):
        yield "<p>Requires an API key, if the server has any.</p>"
    for parameter in operation.get("parameters", ()):
        said = parameter.get("description", "")
        needed = "required" if parameter.get("required") else "optional"
        where = f"{parameter['in']}, {needed}"
        yield f"<p><code>{escape(parameter['name'])}</code> ({escape(where)}): {escape(said)}</p>"
    for status, response in operation["responses"].items():
        for media_type, content in response.get("content", {}).items():
            name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            link = f': <a href="#{escape(name)}">{escape(name)}</a>' if name else ""
            yield f"<p>{escape(status)} <code>{escape(media_type)}</code>{link}</p>"


def _write_schema(schema: Mapping[str, Any]) -> str:
    return f"<pre>{escape(json.dumps(schema, indent=2))}</pre>"
