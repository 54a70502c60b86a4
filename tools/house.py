"""Prints structural figures of the code: packages, import levels, cycles, names, long functions.

    python tools/house.py                            a table
    python tools/house.py --json                     JSON instead
    python tools/house.py --json build/house.json    and JSON in a file
    python tools/house.py --names --long             and list those names and functions

The figures come from the syntax trees; nothing is imported. A room is a folder with Python files.
An arrow is a pair of rooms, or of files, one of which imports the other; the levels of a part are
its longest chain of such imports. A name has several meanings if more than one product file defines
a class with that name.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PARTS = {
    "evenkeel": "",
    "evenkeel_runtime": "runtime",
    "evenkeel_collector": "collector",
    "evenkeel_dashboard": "dashboard",
    "evenkeel_evals": "evals",
    "evenkeel_demo": "demo",
}
OTHERS = ("tests", "bench", "tools", "golden_datasets")
LONG_FUNCTION = 60
STDOUT = Path("-")
Graph = Mapping[str, set[str]]


@dataclass(frozen=True, slots=True)
class Module:
    """A file of the product: its dotted name, its part, and its syntax tree."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def part(self) -> str:
        """Return the first component of the name."""
        return self.name.split(".")[0]

    @property
    def room(self) -> str:
        """Return the folder's dotted name."""
        package = self.path.stem == "__init__"
        return self.name if package else self.name.rpartition(".")[0]


def read_modules(root: Path) -> list[Module]:
    """Return every Python file of the parts."""
    found = []
    for part, distribution in PARTS.items():
        parent = root / distribution
        for path in sorted((parent / part).rglob("*.py")):
            words = path.relative_to(parent).with_suffix("").parts
            name = ".".join(words[:-1] if words[-1] == "__init__" else words)
            found.append(Module(name, path, ast.parse(path.read_text(encoding="utf-8"))))
    return found


def imports_of(module: Module, known: set[str]) -> set[str]:
    """Return our modules that a file imports, anywhere in the file."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    deepest = {name for name in found & known if name != module.name}
    # `from a.b import c` names a.b as well; count the package only if nothing below it counts.
    return {n for n in deepest if not any(m.startswith(f"{n}.") for m in deepest)}


def cycles_of(graph: Graph) -> list[list[str]]:
    """Return the groups of nodes that reach each other (Tarjan), largest first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(groups, key=len, reverse=True)


def levels_of(graph: Graph) -> int:
    """Return the nodes of the longest chain; a cycle counts as one node."""
    group_of = {node: min(group) for group in cycles_of(graph) for node in group}
    merged: dict[str, set[str]] = defaultdict(set)
    for node, others in graph.items():
        mine = group_of.get(node, node)
        merged[mine] |= {group_of.get(other, other) for other in others} - {mine}
    known: dict[str, int] = {}

    def depth(node: str) -> int:
        if node not in known:
            known[node] = 1 + max((depth(other) for other in merged.get(node, ())), default=0)
        return known[node]

    return max((depth(node) for node in merged), default=0)


def rooms_of(graph: Graph, room_of: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the same graph between rooms."""
    rooms: dict[str, set[str]] = {room_of[name]: set() for name in graph}
    for name, others in graph.items():
        rooms[room_of[name]] |= {room_of[other] for other in others} - {room_of[name]}
    return rooms


def names_of_several_meanings(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Return the names of classes that more than one file defines, with the files."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module.name)
    return {name: found for name, found in sorted(places.items()) if len(set(found)) > 1}


def functions_of(modules: Iterable[Module]) -> Iterator[tuple[str, int]]:
    """Yield the functions with their length in lines."""
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield f"{module.name}:{node.name}", lines


def count_lines(paths: Iterable[Path]) -> int:
    """Return the number of lines in some files."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


@dataclass(frozen=True, slots=True)
class PartFigures:
    """The structure of one part: levels and arrows between its files and between its rooms."""

    files: int
    rooms: int
    file_levels: int
    file_arrows: int
    room_levels: int
    room_arrows: int
    lines: int
    file_cycles: list[list[str]]
    room_cycles: list[list[str]]


@dataclass(frozen=True, slots=True)
class House:
    """All figures; `lines` covers code outside the parts."""

    parts: dict[str, PartFigures]
    names: dict[str, list[str]]
    long_functions: dict[str, int]
    longest_function: int
    lines: dict[str, int]

    @property
    def python_lines(self) -> int:
        """Return the total number of Python lines."""
        others = sum(self.lines[name] for name in OTHERS)
        return sum(part.lines for part in self.parts.values()) + others

    def to_json(self) -> dict[str, Any]:
        """Return the figures for programs; `floors` and `arrows` are those between rooms."""
        return {
            "parts": {
                name: {
                    "rooms": part.rooms,
                    "floors": part.room_levels,
                    "arrows": part.room_arrows,
                    "circles": len(part.room_cycles) + len(part.file_cycles),
                    "lines": part.lines,
                    "files": part.files,
                }
                for name, part in self.parts.items()
            },
            "names_with_several_meanings": len(self.names),
            "longest_function": self.longest_function,
            "long_functions": self.long_functions,
            "other_lines": self.lines,
            "python_lines": self.python_lines,
        }


def measure(root: Path) -> House:
    """Return the figures of a checkout."""
    modules = read_modules(root)
    known = {module.name for module in modules}
    room_of = {module.name: module.room for module in modules}
    parts = {}
    for part in PARTS:
        mine = [module for module in modules if module.part == part]
        graph = {
            module.name: {n for n in imports_of(module, known) if n.split(".")[0] == part}
            for module in mine
        }
        rooms = rooms_of(graph, room_of)
        parts[part] = PartFigures(
            files=len(mine),
            rooms=len(rooms),
            file_levels=levels_of(graph),
            file_arrows=sum(map(len, graph.values())),
            room_levels=levels_of(rooms),
            room_arrows=sum(map(len, rooms.values())),
            lines=count_lines(module.path for module in mine),
            file_cycles=cycles_of(graph),
            room_cycles=cycles_of(rooms),
        )
    functions = sorted(functions_of(modules), key=lambda found: -found[1])
    long = {name: length for name, length in functions if length > LONG_FUNCTION}
    lines = {name: count_lines((root / name).rglob("*.py")) for name in OTHERS}
    lines["docs"] = count_lines((root / "docs").rglob("*.md"))
    return House(parts, names_of_several_meanings(modules), long, functions[0][1], lines)


COLUMNS = ("files", "rooms", "file_levels", "file_arrows", "room_levels", "room_arrows", "lines")


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--json", type=Path, nargs="?", const=STDOUT, metavar="PATH",
        help="write JSON to PATH, or print only JSON",
    )  # fmt: skip
    parser.add_argument("--names", action="store_true", help="list names of several meanings")
    parser.add_argument("--long", action="store_true", help="list long functions")
    args = parser.parse_args()
    house = measure(ROOT)
    text = json.dumps(house.to_json(), indent=2)
    if args.json == STDOUT:
        print(text)
        return 0
    print(f"{'part':10} " + " ".join(f"{name:>11}" for name in COLUMNS) + "  cycles")
    for name, part in house.parts.items():
        shown = " ".join(f"{getattr(part, column):>11,}" for column in COLUMNS)
        cycles = f"{len(part.file_cycles)} of files, {len(part.room_cycles)} of rooms"
        print(f"{name:10} {shown}  {cycles}")
    print(f"names with several meanings: {len(house.names)}")
    for name, places in house.names.items() if args.names else ():
        print(f"  {name}: {', '.join(places)}")
    print(f"functions over {LONG_FUNCTION} lines: {len(house.long_functions)}")
    for name, lines in house.long_functions.items() if args.long else ():
        print(f"  {lines:4} {name}")
    print(f"other lines: {house.lines}; Python in all: {house.python_lines:,}")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
