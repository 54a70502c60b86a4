"""Writes the locks of the images: of the whole lock, what each part needs, and nothing else.

    python tools/part_locks.py      run by `make lock`, in an environment that has the whole lock

tests/unit/test_images.py fails where a lock is not what this writes.
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
# The extras that each image has of its own part.
EXTRAS_OF: dict[str, tuple[str, ...]] = {"collector": ("embedded",), "dashboard": ()}


def part_lock(part: str) -> str:
    """Return the lock of a part: the lines of the whole lock that its extras reach.

    Raises:
        ValueError: If something that it needs is not in the whole lock.
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
    """Return the names of everything that requirements lead to, by what is installed."""
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
