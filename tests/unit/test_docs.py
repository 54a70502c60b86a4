"""The docs name everything a user can set, read or run."""

import argparse
import re
from importlib import import_module
from pathlib import Path

import pytest

from evenkeel import spans
from evenkeel.cli import build_parser, find_commands
from evenkeel.settings import Settings

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
ALL_DOCS = "\n".join(path.read_text(encoding="utf-8") for path in DOCS)
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_span_attribute_is_defined() -> None:
    attributes = {
        value
        for name, value in vars(spans).items()
        if name.isupper()
        and isinstance(value, str)
        and re.match(r"(evenkeel|gen_ai|error)\.", value)
    }
    metrics = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert sorted(a for a in attributes if f"`{a}" not in metrics) == []


def test_every_header_is_documented() -> None:
    headers = {value for name, value in vars(spans).items() if name.startswith("HEADER_")}
    assert sorted(header for header in headers if header not in ALL_DOCS) == []


@pytest.mark.parametrize("command", [command.name for command in find_commands()])
def test_every_command_is_in_the_readme(command: str) -> None:
    assert f"evenkeel {command}" in README


@pytest.mark.parametrize("command", [command.name for command in find_commands()])
def test_every_command_shows_an_example(command: str) -> None:
    parser = build_parser(find_commands())
    subparsers = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    assert "example" in (subparsers.choices[command].epilog or "")


def settings_classes() -> list[type[Settings]]:
    for module in ("runtime.settings", "collector.settings", "dashboard.configuration"):
        import_module(module)
    # Other tests declare settings of their own.
    ours = ("runtime", "collector", "dashboard")
    return [c for c in Settings.__subclasses__() if c.__module__.split(".")[0] in ours]


def test_every_setting_is_documented() -> None:
    configuration = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    missing = [
        f"{cls.section}.{name}"
        for cls in settings_classes()
        for name in cls.model_fields
        if f"`{name}`" not in configuration
    ]
    assert missing == []


def test_the_readme_fits_and_shows_its_two_commands() -> None:
    assert len(README.splitlines()) < 200
    assert "make demo" in README
    assert "make test" in README


@pytest.mark.parametrize("page", [*DOCS, ROOT / "README.md"], ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
