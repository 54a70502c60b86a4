"""The docs name everything a user can set, read or run."""

import argparse
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from evenkeel import spans
from evenkeel.cli import build_parser, find_commands
from evenkeel.request_record import REQUEST_FIELDS
from evenkeel.settings import Settings, find_settings
from evenkeel.settings_flags import show_default
from tests.checkout import ROOT
from tools import decision_index, room_tables
from tools.house import OTHERS, PARTS, read_modules

DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [
    *DOCS,
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("*/README.md")),
    *sorted(ROOT.glob("golden_datasets/*/*.md")),
]
ALL_DOCS = "\n".join(path.read_text(encoding="utf-8") for path in DOCS)
README = (ROOT / "README.md").read_text(encoding="utf-8")
MODULES = read_modules(ROOT)


def table_of_columns() -> str:
    lines = ["| column | type | attribute | unit and meaning |", "|---|---|---|---|"]
    for field in REQUEST_FIELDS.values():
        if field.column is not None:
            row = f"| `{field.name}` | {field.column} | `{field.attribute}` | {field.meaning} |"
            lines.append(row)
    return "\n".join(lines)


def table_of_attributes() -> str:
    lines = ["| attribute | unit and meaning |", "|---|---|"]
    for field in REQUEST_FIELDS.values():
        if field.column is None:
            lines.append(f"| `{field.attribute}` | {field.meaning} |")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "heading", "table"),
    [
        ("data-model.md", "columns of requests", table_of_columns()),
        ("metrics.md", "attributes of a request", table_of_attributes()),
    ],
)
def test_the_fields_of_a_request_are_documented(
    name: str, heading: str, table: str, request: pytest.FixtureRequest
) -> None:
    assert table_in(ROOT / "docs" / name, heading, table, request) == table, "run `make golden`"


def table_in(page: Path, heading: str, table: str, request: pytest.FixtureRequest) -> str:
    """Return the table between the comments of a page, rewritten first if that is asked for."""
    text = page.read_text(encoding="utf-8")
    block = re.compile(rf"(<!-- {heading}: .* -->\n)([^<]*?)\n?(<!-- end -->)")
    if request.config.getoption("--rewrite-golden"):
        text = block.sub(lambda found: f"{found[1]}{table}\n{found[3]}", text)
        page.write_text(text, encoding="utf-8")
    found = block.search(text)
    assert found is not None, f"{page.name} has no place for the {heading}"
    return found[2]


def test_every_span_attribute_is_defined() -> None:
    attributes = {
        value
        for name, value in vars(spans).items()
        if name.isupper()
        and isinstance(value, str)
        and re.match(r"(evenkeel|gen_ai|error)\.", value)
    }
    attributes |= {field.attribute for field in REQUEST_FIELDS.values() if field.column is not None}
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


COMMANDS = {
    "runtime": ["serve"],
    "speculation": ["serve"],
    "steps": ["serve"],
    "collector": ["collect"],
    "redaction": ["collect"],
    "dashboard": ["dashboard"],
    "eval": ["eval", "run"],
}


def settings_classes() -> dict[str, type[Settings]]:
    for part, folder in PARTS.items():
        for path in (ROOT / folder / part).rglob("*.py"):
            if re.search(r"^class \w+\(Settings\):", path.read_text(encoding="utf-8"), re.M):
                name = path.relative_to(ROOT / folder).with_suffix("")
                import_module(".".join(name.parts))
    # Other tests declare settings of their own.
    return {
        cls.section: cls
        for cls in Settings.__subclasses__()
        if cls.__module__.split(".")[0] in PARTS
    }


def parser_of(words: list[str]) -> argparse.ArgumentParser:
    parser = build_parser(find_commands())
    for word in words:
        subparsers = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        parser = subparsers.choices[word]
    return parser


def settings_table(cls: type[Settings]) -> str:
    lines = ["| setting | flag | variable | default | meaning |", "|---|---|---|---|---|"]
    for setting in find_settings(cls):
        flag = "– (set by `evenkeel serve`)" if setting.is_handed_down else f"`{setting.flag}`"
        # Pages are named from the folder above in --help, and linked here.
        meaning = re.sub(r"docs/(\w+\.md)", r"[\1](\1)", setting.description)
        meaning += " (*secret*)" if setting.is_secret else ""
        default = show_default(setting)
        lines.append(
            f"| `{setting.name}` | {flag} | `{setting.variable}` | {default} | {meaning} |"
        )
    return "\n".join(lines)


@pytest.mark.parametrize("section", settings_classes())
def test_every_setting_is_documented(section: str, request: pytest.FixtureRequest) -> None:
    page = ROOT / "docs" / "configuration.md"
    table = settings_table(settings_classes()[section])
    assert table_in(page, f"settings of {section}", table, request) == table, "run `make golden`"


@pytest.mark.parametrize("section", settings_classes())
def test_every_setting_says_what_it_means(section: str) -> None:
    settings = find_settings(settings_classes()[section])
    assert [setting.name for setting in settings if not setting.description] == []


@pytest.mark.parametrize("section", settings_classes())
def test_every_setting_has_a_flag_with_a_line_of_help(section: str) -> None:
    parser = parser_of(COMMANDS[section])
    helped = {flag: action.help for action in parser._actions for flag in action.option_strings}
    settings = find_settings(settings_classes()[section])
    assert [s.flag for s in settings if not s.is_handed_down and not helped.get(s.flag)] == []


@pytest.mark.parametrize("section", settings_classes())
def test_only_what_processes_tell_each_other_has_no_flag(section: str) -> None:
    handed_down = {s.name for s in find_settings(settings_classes()[section]) if s.is_handed_down}
    assert handed_down <= {"socket", "limits_file", "reports"}


@pytest.mark.parametrize("section", settings_classes())
def test_what_may_hold_a_secret_is_masked(section: str) -> None:
    """A new setting for a password, key or token must be declared as one."""
    suspects = re.compile(
        r"password|secret|token\b|api_key|hash_key|clickhouse$|(query|store)_url|otlp_endpoint"
    )
    # A name of a file, not what it holds.
    paths = {"oidc_secrets"}
    open_ones = [
        setting.name
        for setting in find_settings(settings_classes()[section])
        if suspects.search(setting.name) and not setting.is_secret and setting.name not in paths
    ]
    assert open_ones == []


def commands_of(page: Path) -> list[str]:
    """Return the `evenkeel` commands in the fenced blocks of a page."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if re.match(r"(\.venv/bin/)?evenkeel ", line)]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, id=f"{page.stem}-{number}")
        for page in (ROOT / "README.md", *sorted((ROOT / "docs" / "start").glob("*.md")))
        for number, command in enumerate(commands_of(page))
    ],
)
def test_commands_for_beginners_have_the_flags_they_are_shown_with(command: str) -> None:
    words = shlex.split(re.sub(r"( &| >+ \S+)$", "", command.partition(" #")[0].rstrip()))
    parsed, others = build_parser(find_commands()).parse_known_args(words[1:])
    # What `serve` does not know is vLLM's.
    assert parsed.command == "serve" or others == []


def test_the_readme_fits_and_shows_its_two_commands() -> None:
    assert len(README.splitlines()) < 200
    assert "make demo" in README
    assert "make test" in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


CODE = [
    path
    for pattern in ("*.py", "*.sql", "*.toml", "*.yaml", "Makefile", "Dockerfile", ".ci/run")
    for folder in (*{folder or part for part, folder in PARTS.items()}, *OTHERS, "prompts", ".")
    for path in ((ROOT / folder).glob(pattern) if folder == "." else (ROOT / folder).rglob(pattern))
]


def test_every_page_that_the_code_names_exists() -> None:
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in CODE
        for name in re.findall(r"docs/[\w/-]+\.md", path.read_text(encoding="utf-8"))
        if not (ROOT / name).exists()
    }
    assert missing == set()


@pytest.mark.parametrize("page", room_tables.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_of_rooms_are_current(page: Path, request: pytest.FixtureRequest) -> None:
    text = page.read_text(encoding="utf-8")
    renewed = room_tables.renew(text, MODULES)
    if request.config.getoption("--rewrite-golden"):
        page.write_text(renewed, encoding="utf-8")
        text = renewed
    assert text == renewed, "run `make golden`"


@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_its_tables(part: str) -> None:
    readme = (ROOT / (PARTS[part] or part) / "README.md").read_text(encoding="utf-8")
    assert f"<!-- rooms of {part}:" in readme
    assert f"<!-- imports of {part}:" in room_tables.ARCHITECTURE.read_text(encoding="utf-8")


def test_the_index_of_decisions_is_current() -> None:
    decisions = decision_index.read_decisions(decision_index.FOLDER)
    text = decision_index.INDEX.read_text(encoding="utf-8")
    kept = decision_index.read_kept(text)
    listed = [decision for decision in decisions if decision.number in kept]
    assert [decision.file for decision in decisions if decision not in listed] == []
    assert decision_index.render(listed, kept) == text, "run `python tools/decision_index.py`"


def test_every_decision_has_a_date_and_an_area() -> None:
    kept = decision_index.read_kept(decision_index.INDEX.read_text(encoding="utf-8"))
    assert [number for number, entry in kept.items() if "?" in (entry.date, entry.area)] == []
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", entry.date) for entry in kept.values())


def test_a_page_that_supersedes_part_of_another_marks_it(tmp_path: Path) -> None:
    (tmp_path / "0001-a.md").write_text("# 0001: charts by hand\n", encoding="utf-8")
    (tmp_path / "0002-b.md").write_text("# Tables\n\nThis supersedes [0001](0001-a.md).\n")
    (tmp_path / "0003-c.md").write_text("# 0003: bars\n\nIt supersedes what 0002 says of bars.\n")
    decisions = decision_index.read_decisions(tmp_path)
    entry = decision_index.Entry("2026-01-02", "dashboard")
    rows = decision_index.render(decisions, {d.number: entry for d in decisions}).splitlines()[-3:]
    assert rows == [
        "| [0001](0001-a.md) | charts by hand | superseded | 2026-01-02 | dashboard "
        "| [0002](0002-b.md) |",
        "| [0002](0002-b.md) | Tables | superseded in part | 2026-01-02 | dashboard "
        "| [0003](0003-c.md) |",
        "| [0003](0003-c.md) | bars | accepted | 2026-01-02 | dashboard | – |",
    ]
