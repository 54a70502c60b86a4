"""Templates of the HTML that we write; whatever they print is escaped."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


def html_templates(package: str, folder: str = "") -> Environment:
    """Return the templates in a folder of a package; an unknown name in one is an error."""
    return Environment(
        loader=PackageLoader(package, folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
