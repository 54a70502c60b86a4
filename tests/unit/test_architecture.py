"""The arrows of docs/architecture.md: parts import the kernel, and nobody imports a part."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEAVES = ("runtime", "collector", "dashboard", "evals")
NAMELESS = ("utils", "common", "helpers", "shared", "misc")


def python_files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported_packages(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", ["evenkeel", *LEAVES])
def test_no_part_imports_another_part(package: str) -> None:
    forbidden = set(LEAVES) - {package}
    offenders = {
        str(path.relative_to(ROOT)): sorted(imported_packages(path) & forbidden)
        for path in python_files(package)
        if imported_packages(path) & forbidden
    }
    assert offenders == {}


@pytest.mark.parametrize("package", ["evenkeel", "collector", "dashboard", "evals"])
def test_only_the_runtime_imports_vllm_or_torch(package: str) -> None:
    offenders = [
        str(path.relative_to(ROOT))
        for path in python_files(package)
        if imported_packages(path) & {"vllm", "torch", "transformers"}
    ]
    assert offenders == []


def test_the_dashboard_holds_no_sql() -> None:
    offenders = [
        str(path.relative_to(ROOT))
        for path in python_files("dashboard")
        if "SELECT " in path.read_text(encoding="utf-8")
    ]
    assert offenders == []


@pytest.mark.parametrize("package", ["evenkeel", *LEAVES])
def test_modules_are_small_and_named_after_what_they_hold(package: str) -> None:
    for path in python_files(package):
        num_lines = len(path.read_text(encoding="utf-8").splitlines())
        assert num_lines <= 400, f"{path} has {num_lines} lines: split it"
        assert path.stem not in NAMELESS, f"{path}: name it after what it holds"


def test_only_settings_reads_the_environment() -> None:
    offenders = [
        str(path.relative_to(ROOT))
        for package in ("evenkeel", *LEAVES)
        for path in python_files(package)
        if "os.environ[" in path.read_text(encoding="utf-8")
        or "os.getenv(" in path.read_text(encoding="utf-8")
    ]
    assert offenders == []
