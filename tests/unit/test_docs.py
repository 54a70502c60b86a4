"""The docs name everything a user can set, read or run."""

import argparse
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from evenkeel import spans
from evenkeel.cli import build_parser, find_commands
from evenkeel.request_record import REQUEST_FIELDS
from evenkeel.settings import find_settings
from tests.checkout import ROOT
from tools import decision_index, reference, room_tables
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
SETTINGS = reference.settings_classes()


def test_every_attribute_that_is_no_column_is_defined_in_metrics() -> None:
    metrics = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    found = [field.attribute for field in REQUEST_FIELDS.values() if field.column is None]
    plain = [name for name in found if not set(name) & set("{*")]
    assert [name for name in plain if f"`{name}" not in metrics] == []


def test_every_header_is_documented() -> None:
    headers = {value for name, value in vars(spans).items() if name.startswith("HEADER_")}
    assert sorted(header for header in headers if header not in ALL_DOCS) == []


@pytest.mark.parametrize("command", [command.name for command in find_commands()])
def test_every_command_is_in_the_readme(command: str) -> None:
    assert f"evenkeel {command}" in README


@pytest.mark.parametrize("command", [command.name for command in find_commands()])
def test_every_command_shows_an_example(command: str) -> None:
    parser = build_parser(find_commands())
    assert "example" in (reference.subparsers_of(parser)[command].epilog or "")


def parser_of(words: list[str]) -> argparse.ArgumentParser:
    parser = build_parser(find_commands())
    for word in words:
        parser = reference.subparsers_of(parser)[word]
    return parser


# The tables need a store: tests/integration/collector/test_tables_reference.py.
@pytest.mark.parametrize("name", sorted(reference.PAGES.keys() - {"tables"}))
def test_the_reference_is_current(name: str, request: pytest.FixtureRequest) -> None:
    page = reference.FOLDER / f"{name}.md"
    if request.config.getoption("--rewrite-golden"):
        page.write_text(reference.PAGES[name](), encoding="utf-8")
    assert page.read_text(encoding="utf-8") == reference.PAGES[name](), "run `make golden`"


@pytest.mark.parametrize("name", reference.PAGES)
def test_everything_in_the_reference_has_a_meaning(name: str) -> None:
    rows = (reference.FOLDER / f"{name}.md").read_text(encoding="utf-8").splitlines()
    assert [row for row in rows if row.endswith("| ? |")] == []


def test_an_openapi_document_becomes_its_routes_and_models() -> None:
    ok = {"200": {"content": {"text/html": {}}}}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Silence"}}}}
    silence = {"summary": "Silence alerts.", "requestBody": body, "responses": ok | {"422": {}}}
    month = {"name": "month", "schema": {"type": "integer"}, "description": "Which."}
    report = {"summary": "Report.", "parameters": [month], "responses": ok}
    fields = {"by": {"type": "string", "minLength": 1}, "of": {"$ref": "#/x/Silence"}}
    text = "Silences.\n\nAttributes:\n    by: Who\n        acts.\n    of: What."
    document = {
        "paths": {"/api/silence": {"post": silence}, "/api/report": {"get": report}},
        "components": {
            "schemas": {"Silence": {"properties": fields, "required": ["by"], "description": text}}
        },
    }
    lines = reference.http_api("Operators", document).splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    assert rows == [
        "| `GET /api/report` | Report. | `month` | – | `text/html` |",
        "| `POST /api/silence` | Silence alerts. | – | [`Silence`](#silence) | `text/html` |",
        "| `GET /api/report` | `month` | integer | Which |",
        "| `by` | string, at least 1 long | yes | Who acts |",
        "| `of` | [Silence](#silence) |  | What |",
    ]
    assert lines[lines.index("### Silence") + 2] == "Silences."


@pytest.mark.parametrize("section", SETTINGS)
def test_every_setting_says_what_it_means(section: str) -> None:
    settings = find_settings(SETTINGS[section])
    assert [setting.name for setting in settings if not setting.description] == []


@pytest.mark.parametrize("section", SETTINGS)
def test_every_setting_has_a_flag_with_a_line_of_help(section: str) -> None:
    parser = parser_of(reference.COMMANDS[section])
    helped = {flag: action.help for action in parser._actions for flag in action.option_strings}
    settings = find_settings(SETTINGS[section])
    assert [s.flag for s in settings if not s.is_handed_down and not helped.get(s.flag)] == []


@pytest.mark.parametrize("section", SETTINGS)
def test_only_what_processes_tell_each_other_has_no_flag(section: str) -> None:
    handed_down = {s.name for s in find_settings(SETTINGS[section]) if s.is_handed_down}
    assert handed_down <= {"socket", "limits_file", "reports"}


@pytest.mark.parametrize("section", SETTINGS)
def test_what_may_hold_a_secret_is_masked(section: str) -> None:
    """A new setting for a password, key or token must be declared as one."""
    suspects = re.compile(
        r"password|secret|token\b|api_key|hash_key|clickhouse$|(query|store)_url|otlp_endpoint"
    )
    # A name of a file, not what it holds.
    paths = {"oidc_secrets"}
    open_ones = [
        setting.name
        for setting in find_settings(SETTINGS[section])
        if suspects.search(setting.name) and not setting.is_secret and setting.name not in paths
    ]
    assert open_ones == []


def commands_of(page: Path) -> list[str]:
    """Return the `evenkeel` commands in the fenced blocks of a page."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if re.match(COMMAND, line.lstrip())]


@cache
def whole_parser() -> argparse.ArgumentParser:
    return build_parser(find_commands())


COMMAND = r"([A-Z_]+=\S+ )*(\.venv/bin/)?evenkeel (?=[a-z])"
# The change log names flags as they were.
USED = [
    page
    for page in PAGES
    if page.parent.name not in ("decisions", "reference") and page.name != "CHANGELOG.md"
]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, id=f"{page.relative_to(ROOT)}-{number}")
        for page in USED
        for number, command in enumerate(commands_of(page))
    ],
)
def test_commands_have_the_flags_they_are_shown_with(command: str) -> None:
    check_command(command)


def check_command(command: str) -> None:
    # Without its comment, what takes its output, and values that a shell would fill in.
    alone = re.sub(r"( &| [|>].*)$", "", command.partition(" #")[0].rstrip())
    alone = re.sub(r"\$\([^)]*\)", "2026-11-26T12:00Z", re.sub(COMMAND, "", alone.lstrip()))
    parsed, others = whole_parser().parse_known_args(shlex.split(alone))
    # What `serve` does not know is vLLM's.
    assert parsed.command == "serve" or others == []
    assert not others or others[0].startswith("-"), "a comment begins with #"


def every_parser(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for below in reference.subparsers_of(parser).values():
        yield from every_parser(below)


def test_examples_in_help_can_be_copied() -> None:
    for parser in every_parser(whole_parser()):
        text = (parser.epilog or "").replace("\\\n", " ")
        for line in re.findall(r"^  (evenkeel [a-z].*)$", text, re.M):
            check_command(line)


@pytest.mark.parametrize("page", USED, ids=lambda page: str(page.relative_to(ROOT)))
def test_flags_of_commands_within_a_sentence_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    unknown = []
    for command in re.findall(r"`(?:\.venv/bin/)?evenkeel ([a-z][^`]*)`", text):
        parser = whole_parser()
        words = command.split()
        while words and words[0] in (below := reference.subparsers_of(parser)):
            parser = below[words.pop(0)]
        known = set(parser._option_string_actions)
        unknown += [w for w in words if w.startswith("--") and w.partition("=")[0] not in known]
    assert unknown == []


def test_the_readme_fits_and_shows_its_two_commands() -> None:
    assert len(README.splitlines()) < 200
    assert "make demo" in README
    assert "make test" in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(
        r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")
    ):
        found = page.parent / target if target else page
        assert found.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors_of(found), f"{page.name} links to {target}#{anchor}"


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_cell_of_a_table_is_a_paragraph(page: Path) -> None:
    rows = re.findall(r"^\|(.*)\|$", page.read_text(encoding="utf-8"), re.M)
    # Names and addresses do not count.
    cells = [re.sub(r"`[^`]*`|\]\([^)]*\)", "", cell) for row in rows for cell in row.split(" | ")]
    assert [cell for cell in cells if len(cell) > 200] == []


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
        # A migration stays as it was applied, its comments too.
        if path.parent.name != "schema" and not (ROOT / name).exists()
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
