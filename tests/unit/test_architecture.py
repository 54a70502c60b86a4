"""The arrows of docs/inside/architecture.md: which part, and which room, may import which."""

import ast
import importlib.util
import re
import sys
from types import ModuleType

import pytest

from tests.checkout import ROOT

NAMELESS = ("utils", "common", "helpers", "shared", "misc")

# Between parts: each imports the kernel, the kernel nobody.
PARTS = {
    "evenkeel": "evenkeel",
    "evenkeel_runtime": "runtime/evenkeel_runtime",
    "evenkeel_collector": "collector/evenkeel_collector",
    "evenkeel_dashboard": "dashboard/evenkeel_dashboard",
    "evenkeel_evals": "evals/evenkeel_evals",
    "evenkeel_demo": "demo/evenkeel_demo",
}

# The demo's distribution has the datasets.
DATASETS_OF = {"evenkeel_demo": {"golden_datasets"}}

# Within a part: the rooms that each room may import. "" is the part's own folder.
ROOMS: dict[str, dict[str, list[str]]] = {
    "evenkeel": {
        "": [],
        "doctor": ["", "engines"],
        "engines": [""],
        "prices": [""],
        "privacy": [""],
        "prompts": [""],
        "slo": [""],
        "slo.file": ["", "slo"],
        "whatif": ["", "prices"],
        "why": [""],
    },
    "evenkeel_runtime": {
        "": [],
        "adapter": ["control", "engine", "request", "response_cache", "speculation", "wire"],
        "compression": ["metrics", "text"],
        "control": ["metrics", "wire"],
        "demo_model": [],
        "engine": ["wire"],
        "exporter": ["ledger", "wire"],
        "ledger": ["wire"],
        "metrics": [],
        "request": ["compression", "control", "speculation", "wire"],
        "response_cache": ["metrics", "request", "text", "wire"],
        "serve": [
            "adapter",
            "compression",
            "control",
            "demo_model",
            "engine",
            "metrics",
            "request",
            "response_cache",
            "speculation",
            "wire",
        ],
        "speculation": ["wire"],
        "text": [],
        "wire": [],
    },
    "evenkeel_collector": {
        "": [],
        "alerts": [],
        "boards": [],
        "commands": [
            "alerts",
            "boards",
            "delivery",
            "log",
            "operators",
            "redaction",
            "serve",
            "slo",
            "slo.formats",
            "store",
        ],
        "delivery": ["alerts"],
        "intake": ["log", "ports", "redaction", "telemetry"],
        "log": [],
        "operators": ["alerts", "intake", "ports", "slo"],
        "ports": ["telemetry"],
        "query": ["ports", "store", "telemetry"],
        "redaction": [],
        "serve": [
            "intake",
            "log",
            "operators",
            "ports",
            "query",
            "redaction",
            "slo",
            "store",
            "telemetry",
        ],
        "slo": ["alerts", "delivery", "store"],
        "slo.formats": [],
        "store": ["log", "telemetry"],
        "telemetry": ["log"],
    },
    "evenkeel_dashboard": {
        "": [],
        "draw": [],
        "frame": ["draw"],
        "pages": [
            "frame",
            "pages.alerts",
            "pages.cache",
            "pages.compare",
            "pages.cost",
            "pages.engine",
            "pages.evals",
            "pages.explore",
            "pages.health",
            "pages.latency",
            "pages.request",
            "pages.sessions",
            "pages.slo",
        ],
        "pages.alerts": ["draw", "frame"],
        "pages.cache": ["draw", "frame"],
        "pages.compare": ["draw", "frame"],
        "pages.cost": ["draw", "frame"],
        "pages.engine": ["draw", "frame"],
        "pages.evals": ["draw", "frame"],
        "pages.explore": ["draw", "frame"],
        "pages.health": ["draw", "frame"],
        "pages.latency": ["draw", "frame"],
        "pages.request": ["draw", "frame"],
        "pages.sessions": ["draw", "frame", "sessions"],
        "pages.slo": ["draw", "frame"],
        "sessions": [],
    },
    "evenkeel_evals": {
        "": [],
        "ask": ["dataset", "scorers", "stats"],
        "commands": [
            "ask",
            "compare",
            "dataset",
            "dataset.imports",
            "production",
            "report",
            "scorers",
            "stats",
            "verdict",
        ],
        "compare": ["ask", "dataset", "dataset.imports", "report", "scorers", "stats", "verdict"],
        "dataset": ["scorers"],
        "dataset.imports": ["dataset"],
        "production": ["ask", "dataset", "report", "scorers", "stats"],
        "report": ["ask", "stats", "verdict"],
        "scorers": [],
        "stats": [],
        "verdict": ["ask", "dataset", "stats"],
    },
    "evenkeel_demo": {
        "": [],
        "simulate": [],
    },
}


def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", ROOT / "tools" / "house.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["house"] = module
    spec.loader.exec_module(module)
    return module


HOUSE = house()
MODULES = HOUSE.read_modules(ROOT)
KNOWN = {module.name for module in MODULES}


def room_of(name: str, part: str) -> str:
    """Return the room of a module within its part."""
    module = next(module for module in MODULES if module.name == name)
    return str(module.room).removeprefix(part).removeprefix(".")


@pytest.mark.parametrize("part", PARTS)
def test_no_part_imports_another_part(part: str) -> None:
    allowed = {"evenkeel", part}
    offenders = {
        module.name: sorted(others)
        for module in MODULES
        if module.part == part
        and (others := {n.split(".")[0] for n in HOUSE.imports_of(module, KNOWN)} - allowed)
    }
    assert offenders == {}


def test_the_kernel_has_only_what_two_parts_need() -> None:
    """Or its own commands: what one part alone uses belongs into that part."""
    graph = {module.name: set(HOUSE.imports_of(module, KNOWN)) for module in MODULES}
    users: dict[str, set[str]] = {}
    for start in graph:
        part = start.split(".")[0]
        if part == "evenkeel" and not start.endswith((".command", ".cli")):
            continue
        reached, waiting = {start}, [start]
        while waiting:
            new = graph.get(waiting.pop(), set()) - reached
            reached |= new
            waiting += new
        for name in reached:
            users.setdefault(name, set()).add(start if part == "evenkeel" else part)
    offenders = {
        module.name: sorted(users.get(module.name, ()))
        for module in MODULES
        if module.part == "evenkeel"
        and module.path.name not in ("__init__.py", "__main__.py")
        and len(found := users.get(module.name, set())) < 2
        and not any(name.startswith("evenkeel.") for name in found)
    }
    assert offenders == {}


@pytest.mark.parametrize("part", PARTS)
def test_rooms_import_what_the_table_allows(part: str) -> None:
    found: dict[str, set[str]] = {}
    for module in MODULES:
        if module.part == part:
            mine = module.room.removeprefix(part).removeprefix(".")
            others = found.setdefault(mine, set())
            for name in HOUSE.imports_of(module, KNOWN):
                if name.split(".")[0] == part:
                    others |= {room_of(name, part)} - {mine}
    assert {room: sorted(others) for room, others in sorted(found.items())} == {
        room: sorted(others) for room, others in sorted(ROOMS[part].items())
    }


@pytest.mark.parametrize("part", PARTS)
def test_nothing_imports_in_a_circle(part: str) -> None:
    graph = {room: set(others) for room, others in ROOMS[part].items()}
    assert HOUSE.cycles_of(graph) == []


def test_no_file_imports_in_a_circle() -> None:
    parts = HOUSE.measure(ROOT).parts
    assert {part: parts[part].file_cycles for part in PARTS} == {part: [] for part in PARTS}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_imports_nothing_that_is_not_installed_with_it(part: str) -> None:
    """Nor by a relative import, which would hide from the table of rooms."""
    elsewhere = {"tests", "bench", "tools"} | ({"golden_datasets"} - DATASETS_OF.get(part, set()))
    offenders = [
        module.name
        for module in MODULES
        if module.part == part
        and (imported(module.tree) & elsewhere or has_relative_imports(module.tree))
    ]
    assert offenders == []


def has_relative_imports(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


@pytest.mark.parametrize("part", PARTS)
def test_every_room_says_what_it_is_in_a_sentence(part: str) -> None:
    for path in (ROOT / PARTS[part]).rglob("__init__.py"):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert docstring.splitlines()[:1] and docstring.splitlines()[0].endswith((".", "?")), path


@pytest.mark.parametrize("part", [part for part in PARTS if part != "evenkeel_runtime"])
def test_only_the_runtime_imports_vllm_or_torch(part: str) -> None:
    offenders = [
        module.name
        for module in MODULES
        if module.part == part and imported(module.tree) & {"vllm", "torch", "transformers"}
    ]
    assert offenders == []


def imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


# What reads or writes the store's tables; statements about system tables name none of them.
TABLES = sorted(
    {
        name
        for path in (ROOT / "collector" / "evenkeel_collector" / "store").rglob("*.sql")
        for name in re.findall(
            r"CREATE (?:OR REPLACE )?(?:TABLE|VIEW) (?:IF NOT EXISTS )?(\w+)",
            path.read_text(encoding="utf-8"),
        )
    }
)
STATEMENT = re.compile(rf"\b(?:FROM|JOIN|INTO|TABLE|UPDATE)\s+(?:\w+\.)?(?:{'|'.join(TABLES)})\b")
# It makes and changes the tables, by names that it finds at run time.
MAKES_STATEMENTS = "evenkeel_collector.store."


def test_queries_are_sql_files() -> None:
    assert "requests" in TABLES
    offenders = [
        module.name
        for module in MODULES
        if not module.name.startswith(MAKES_STATEMENTS)
        and any(
            STATEMENT.search(node.value)
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
    ]
    assert offenders == []


def is_json_read(node: ast.AST) -> bool:
    """`json.loads(…)`, `json.load(…)` or `response.json()`."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    of = node.func.value
    is_loading = isinstance(of, ast.Name) and of.id == "json" and node.func.attr.startswith("load")
    return is_loading or (node.func.attr == "json" and not node.args)


def test_who_expects_broken_json_expects_json_that_is_nested_too_deeply() -> None:
    offenders = []
    for module in MODULES:
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Try):
                continue
            if not any(is_json_read(each) for part in node.body for each in ast.walk(part)):
                continue
            caught = {
                each.id
                for handler in node.handlers
                for each in ast.walk(handler.type or ast.Name("Exception"))
                if isinstance(each, ast.Name)
            }
            if "ValueError" in caught and not caught & {"RecursionError", "Exception"}:
                offenders.append(f"{module.name}:{node.lineno}")
    assert offenders == []


def test_log_lines_are_formatted_in_one_place() -> None:
    offenders = [
        f"{module.name}:{node.lineno}"
        for module in MODULES
        for node in ast.walk(module.tree)
        if module.name != "evenkeel.log_lines"
        and isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (
            node.func.attr in ("StreamHandler", "Formatter")
            or (
                node.func.attr == "basicConfig"
                and "handlers" not in {keyword.arg for keyword in node.keywords}
            )
        )
    ]
    assert offenders == []


@pytest.mark.parametrize("part", PARTS)
def test_modules_are_small_and_named_after_what_they_hold(part: str) -> None:
    for path in (ROOT / PARTS[part]).rglob("*.py"):
        num_lines = len(path.read_text(encoding="utf-8").splitlines())
        assert num_lines <= 400, f"{path} has {num_lines} lines: split it"
        assert path.stem not in NAMELESS, f"{path}: name it after what it holds"


# Every form of reading it: os.environ, os.getenv, `from os import environ`.
ENVIRONMENT = re.compile(r"\benviron\b|\bgetenv\b")
# Those that may: the settings, the command before any library is loaded, and who starts processes
# with an environment of its own.
MAY_READ_IT = ("evenkeel.settings", "evenkeel.cli")
INHERITED = "**os.environ,"


def test_only_settings_reads_the_environment() -> None:
    offenders = [
        module.name
        for module in MODULES
        if module.name not in MAY_READ_IT
        and ENVIRONMENT.search(module.path.read_text(encoding="utf-8").replace(INHERITED, ""))
    ]
    assert offenders == []
