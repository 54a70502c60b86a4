"""Samples in the pages for users are read by the code that reads such files."""

import ast
import importlib
import json
import math
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evenkeel.prices.price_file import read_price_file
from evenkeel.settings import find_settings
from evenkeel_collector.ports.access import read_access_file
from evenkeel_collector.redaction.field_rules import load_rules
from evenkeel_collector.store.retention import read_retention
from evenkeel_dashboard.frame.user_access import read_users
from evenkeel_evals.ask.pair_judge import load_judge
from evenkeel_evals.ask.sides import load_side
from evenkeel_evals.compare.bisect_file import load_changes
from evenkeel_evals.dataset.dataset import load_dataset, refuse_damaged
from evenkeel_evals.production.live_config import load_config
from evenkeel_runtime.compression.settings_file import CompressionPolicy, read_compression
from evenkeel_runtime.control.config import ControlConfig, SloClass, read_control_file
from evenkeel_runtime.response_cache.settings_file import CachePolicy, RoutePolicy, read_policy
from tests.checkout import ROOT
from tests.fixtures.slo_files import slo_file
from tools import reference

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs" / "start").glob("*.md")),
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
    *sorted((ROOT / "docs" / "inside").glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("*/README.md")),
    *sorted(ROOT.glob("golden_datasets/*/*.md")),
]
# Files of other tools, by their first line.
OF_OTHERS = ("name: prompts", "receivers:", "# secrets.toml", "[otel]")
RECEIVERS = "\n".join(
    f"    - {{name: {name}, url: https://alerts.example.com/hook}}"
    for name in ("on-call", "desk", "acme", "chat")
)
ALERTING = f"apiVersion: evenkeel/v1\nkind: Alerting\nspec:\n  receivers:\n{RECEIVERS}\n"
SLO = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: sample}
"""
REST = {
    "indicator": "  indicator: {metric: ttft, groupBy: [tenant]}\n",
    "objectives": "  objectives: [{value: 0.5, target: 0.95}]\n",
    "timeWindow": "  timeWindow: [{duration: 30d, isRolling: true}]\n",
}


def samples_of(*languages: str) -> list[Any]:
    """Return the fenced blocks in these languages, each with its page and number as its name."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for number, (language, block) in enumerate(
            re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S)
        ):
            if language in languages and not block.startswith(OF_OTHERS):
                found.append(pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}"))
    return found


def completed(sample: str) -> str:
    """Return a whole SLO file around a part of one."""
    if "kind: Alerting" in sample:
        return SLO + "spec:\n" + "".join(REST.values()) + "---\n" + sample
    if "apiVersion" in sample:
        return sample
    if sample.startswith("  "):
        return SLO + "spec:\n" + "".join(REST.values()) + "---\n" + ALERTING + sample
    if sample.startswith("select:"):
        inside = "".join(f"  {line}\n" for line in sample.splitlines())
        sample = f"indicator:\n  metric: ttft\n{inside}"
    if not sample.startswith("spec:"):
        sample = "spec:\n" + "".join(f"  {line}\n" for line in sample.splitlines())
    missing = [text for key, text in REST.items() if f"  {key}:" not in sample]
    return SLO + sample + "".join(missing)


@pytest.mark.parametrize("sample", samples_of("yaml"))
def test_slo_files_are_valid(tmp_path: Path, sample: str) -> None:
    file = slo_file(tmp_path, completed(sample))
    assert file.slos or file.rules
    assert file.notes == ()


def read_retention_of(path: Path) -> None:
    read_retention(tomllib.loads(path.read_text(encoding="utf-8"))["retention"])


def check_keys(path: Path) -> None:
    """Check that an evenkeel.toml has only settings that exist."""
    sections = tomllib.loads(path.read_text(encoding="utf-8"))
    for section, keys in sections.items():
        known = {setting.name for setting in find_settings(reference.settings_classes()[section])}
        assert keys.keys() <= known


# How a TOML sample begins, and what reads a file of its kind.
READERS: dict[str, Callable[[Path], object]] = {
    "# cache.toml": read_policy,
    "[[routes]]": read_policy,
    "[[token]]": read_access_file,
    "retention = ": read_retention_of,
    "# compression.toml": read_compression,
    "# evenkeel.toml": check_keys,
    'mode = "dry-run"': read_control_file,
    "[tenants.acme]": read_control_file,
    "currency = ": read_price_file,
    "# users.toml": read_users,
    "name = ": lambda path: load_side(path, "http://127.0.0.1:8000"),
    "[prompt]": lambda path: load_side(path, "http://127.0.0.1:8000", ROOT / "prompts"),
    "# judge.toml": lambda path: load_judge(path, "http://127.0.0.1:8000"),
    "# live.toml": load_config,
    "# changes.toml": lambda path: load_changes(path, "http://127.0.0.1:8000", ROOT / "prompts"),
    "[value.email]": load_rules,
}
# What a sample that is a part of a file needs before it.
BEFORE = {"[prompt]": 'name = "draft"\n', "[tenants.acme]": "[classes.chat]\nttft_s = 0.5\n"}


def indented_samples() -> list[Any]:
    text = (ROOT / "docs" / "guide" / "redaction.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^    .*\n|^\n)+", text, re.M)
    rules = [
        re.sub("^    ", "", block, flags=re.M).strip() for block in blocks if "[value." in block
    ]
    return [pytest.param(block, id="redaction.md") for block in rules]


@pytest.mark.parametrize("sample", [*samples_of("toml"), *indented_samples()])
def test_toml_files_are_valid(tmp_path: Path, sample: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "returns.md").write_text("Within 30 days.")
    good = '[serve]\nmodel = "demo"\n'
    (tmp_path / "good.toml").write_text(f'name = "good"\n{good}')
    if sample.startswith("# in live.toml"):
        (live,) = (s.values[0] for s in samples_of("toml") if s.values[0].startswith("# live.toml"))
        sample = live + sample
    (begin,) = [begin for begin in READERS if sample.startswith(begin)]
    # A hash is shown cut off.
    text = re.sub(r"[0-9a-f]{16}…", lambda cut: cut[0][:16] * 4, BEFORE.get(begin, "") + sample)
    path = tmp_path / "sample.toml"
    path.write_text(text, encoding="utf-8")
    READERS[begin](path)


@pytest.mark.parametrize("sample", samples_of("json"))
def test_items_are_valid(tmp_path: Path, sample: str) -> None:
    (tmp_path / "faq").mkdir()
    (tmp_path / "faq" / "faq.toml").write_text('version = "1.0"\n')
    (tmp_path / "faq" / "faq.jsonl").write_text(json.dumps(json.loads(sample)) + "\n")
    refuse_damaged(load_dataset(tmp_path / "faq"), is_allowed=False)


@pytest.mark.parametrize("sample", samples_of("python"))
def test_python_imports_what_exists(sample: str) -> None:
    imported = [node for node in ast.walk(ast.parse(sample)) if isinstance(node, ast.ImportFrom)]
    for node in imported:
        module = importlib.import_module(str(node.module))
        assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


CODE = ("collector", "dashboard", "demo", "evals", "evenkeel", "runtime")
FOLDERS = (
    "bench", "collector", "dashboard", "demo", "deploy", "docs", "evals", "evenkeel",
    "golden_datasets", "prompts", "runtime", "tests", "tools",
)  # fmt: skip
NAMED = re.compile(rf"(?<![\w/.-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w)")
# Made by a reader of the page, or no path.
NOT_HERE = re.compile(
    r"golden_datasets/(faq|gsm8k|mine)|docs/returns|prompts/(versions|labels|frozen|\.lock)"
    r"|evenkeel/(v1|alerting|target)$"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = NAMED.findall(page.read_text(encoding="utf-8"))
    assert [n for n in named if not (ROOT / n).exists() and not NOT_HERE.match(n)] == []


@pytest.mark.parametrize(
    ("page", "keys"),
    [
        ("cache", {*CachePolicy.model_fields, *RoutePolicy.model_fields}),
        ("compression", set(CompressionPolicy.model_fields)),
        ("control", {*ControlConfig.model_fields, *SloClass.model_fields}),
    ],
)
def test_every_key_of_a_file_is_explained(page: str, keys: set[str]) -> None:
    text = (ROOT / "docs" / "guide" / f"{page}.md").read_text(encoding="utf-8")
    assert [
        key
        for key in sorted(keys)
        if not re.search(rf"`{key}`|`\[\[{key}\]\]`|^{key} = ", text, re.M)
    ] == []


# A reader's own variables, and the beginning of several.
OWN_VARIABLES = {"EVENKEEL_TOKEN_OPERATORS", "EVENKEEL_", "EVENKEEL_REDACTION_", "EVENKEEL_STEPS_"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_variables_that_a_page_names_are_settings(page: Path) -> None:
    settings = (reference.FOLDER / "settings.md").read_text(encoding="utf-8")
    named = set(re.findall(r"EVENKEEL_[A-Z_]*", page.read_text(encoding="utf-8"))) - OWN_VARIABLES
    assert [name for name in sorted(named) if f"`{name}`" not in settings] == []


def texts_of_code() -> str:
    """Return every string of the code but docstrings, a line each, with … for what it fills in."""
    found: set[str] = set()
    for path in (path for folder in CODE for path in (ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = (n.value if isinstance(n, ast.Constant) else "…" for n in node.values)
                found.add("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                if id(node) not in skipped:
                    found.add(re.sub(r"%[sdr]|%\.\df", "…", node.value))
    return "\n".join(" ".join(text.split()) for text in found if " " in text)


# What the Makefile, Python, ClickHouse, pydantic and gRPC say.
OF_OTHER_CODE = (
    "evenkeel needs Python 3.11", ".venv is not Python 3.11",
    "ensurepip is not available", "Address already in use",
    "Cannot modify 'x' setting in readonly mode", "collector.http_port from environment: …",
    "Cannot parse definition from metadata file … .sql",
    "No package metadata was found for vllm",
    "Tls handshake failed", "Expected SETTINGS frame", "http1.x server",
)  # fmt: skip


def test_messages_under_troubleshooting_are_those_of_the_code() -> None:
    code = texts_of_code()
    unknown = []
    for page in (p for p in PAGES if p.parent.name in ("start", "guide")):
        text = page.read_text(encoding="utf-8").partition("\n## Troubleshooting")[2]
        cells = [a or b for a, b in re.findall(r"^\| (.*?) \| |^- (\".*?\")", text, re.M)]
        quoted = [m for cell in cells for m in re.findall(r"`([^`]*)`|\"([^\"]*)\"", cell)]
        for message in ("".join(each) for each in quoted):
            words = re.sub(r"'[^']*'|\d+ %|\d[\w.]*", "…", message).split()
            if len(words) < 2 or message in OF_OTHER_CODE:
                continue
            # Some words are values, such as a name.
            run = max(2, math.ceil(len(words) * 0.6))
            runs = (" ".join(words[i : i + run]) for i in range(len(words) - run + 1))
            if not any(each in code for each in runs):
                unknown.append(f"{page.name}: {message}")
    assert unknown == []
