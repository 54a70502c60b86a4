"""Writes the lock file of each image: the subset of the full lock that its part needs.

    python tools/part_locks.py      run by `make lock`, with the full lock installed

tests/unit/test_images.py fails if a lock differs from this tool's output.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
WHOLE = "requirements-cpu.lock"
# The extras of its own part that each image installs.
EXTRAS_OF: dict[str, tuple[str, ...]] = {"collector": ("embedded",), "dashboard": ()}


def part_lock(part: str) -> str:
    """Return a part's lock: the lines of the full lock that its extras depend on.

    Raises:
        ValueError: If a dependency is not in the full lock.
    """
    kernel, project = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in ("", part)
    )
    wanted = [*kernel["dependencies"], *project["dependencies"]]
    for extra in EXTRAS_OF[part]:
        wanted += project["optional-dependencies"][extra]
    ours = re.compile(r"evenkeel\b")
    needed = _reach([Requirement(text) for text in wanted if not ours.match(text)])
    lines = (ROOT / WHOLE).read_text(encoding="utf-8").splitlines()
    line_of = {canonicalize_name(line.partition("==")[0]): line for line in lines if "==" in line}
    missing = needed - line_of.keys()
    if missing:
        raise ValueError(f"{WHOLE} lacks {', '.join(sorted(missing))}, which {part} needs")
    return "".join(f"{line_of[name]}\n" for name in sorted(needed))


def _reach(first: list[Requirement]) -> set[str]:
    """Return the transitive dependencies of requirements, based on what is installed."""
    reached: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [requirement for requirement in first if _holds(requirement, frozenset())]
    while waiting:
        requirement = waiting.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        reached.add(name)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            texts = requires(name) or []
        except PackageNotFoundError as error:
            raise ValueError(f"{name} is not installed here; install {WHOLE} first") from error
        waiting += [r for r in map(Requirement, texts) if _holds(r, extras)]
    return reached


def _holds(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": e}) for e in (*extras, ""))


def main() -> None:
    """Write each part's lock."""
    for part in EXTRAS_OF:
        (ROOT / f"requirements-{part}.lock").write_text(part_lock(part), encoding="utf-8")


if __name__ == "__main__":
    main()
