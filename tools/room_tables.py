"""Writes the package tables in each part's README and in docs/inside/architecture.md.

    python tools/room_tables.py              rewrites what is out of date
    python tools/room_tables.py --figures    and the figures of tools/house.py
    python tools/room_tables.py --check      changes nothing; exit code 1 if a file is out of date

A room's description is the first line of its `__init__.py`. Its imports are read from the syntax
trees, as in tests/unit/test_architecture.py. A table is placed between two comments:
`<!-- rooms of evenkeel_runtime: … -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.house import (
    LONG_FUNCTION,
    PARTS,
    Graph,
    House,
    Module,
    imports_of,
    measure,
    read_modules,
    rooms_of,
)

ROOT = Path(__file__).parents[1]
ARCHITECTURE = ROOT / "docs" / "inside" / "architecture.md"
BLOCK = re.compile(r"(<!-- (rooms|imports) of (\w+): [^>]*-->\n)(.*?)(<!-- end -->)", re.DOTALL)
# These change with every line of code, so no test compares them.
FIGURES = re.compile(r"(<!-- figures: [^>]*-->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> list[Path]:
    """Return the pages with such tables."""
    return [ROOT / (PARTS[part] or part) / "README.md" for part in PARTS] + [ARCHITECTURE]


def sentence_of(module: Module) -> str:
    """Return the first line of a room's docstring."""
    return (ast.get_docstring(module.tree) or "").splitlines()[0]


def folder_of(room: str, part: str) -> str:
    """Return a room's folder within its part; the part's own folder is `.`."""
    return room.removeprefix(part).removeprefix(".").replace(".", "/") or "."


def graph_of(modules: list[Module], part: str) -> Graph:
    """Return the imports between the rooms of a part."""
    known = {module.name for module in modules}
    mine = [module for module in modules if module.part == part]
    files = {
        module.name: {name for name in imports_of(module, known) if name.split(".")[0] == part}
        for module in mine
    }
    return rooms_of(files, {module.name: module.room for module in mine})


def rooms_table(modules: list[Module], part: str) -> Iterator[str]:
    """Yield table lines of a part's rooms with their descriptions."""
    yield "| room | what it is |"
    yield "|---|---|"
    rooms = {m.room: m for m in modules if m.part == part and m.path.stem == "__init__"}
    for room, module in sorted(rooms.items()):
        if room != part:
            yield f"| `{folder_of(room, part)}` | {sentence_of(module)} |"


def imports_table(modules: list[Module], part: str) -> Iterator[str]:
    """Yield table lines of a part's rooms with the rooms they import."""
    yield "| room | imports |"
    yield "|---|---|"
    for room, others in sorted(graph_of(modules, part).items()):
        shown = ", ".join(f"`{folder_of(other, part)}`" for other in sorted(others))
        yield f"| `{folder_of(room, part)}` | {shown or '–'} |"


def figures_table(house: House) -> Iterator[str]:
    """Yield table lines on the structure of the parts."""
    yield "| part | files | rooms | levels of rooms | arrows between rooms | cycles | lines |"
    yield "|---|---|---|---|---|---|---|"
    for name, part in house.parts.items():
        cycles = len(part.file_cycles) + len(part.room_cycles)
        yield (
            f"| `{name}` | {part.files} | {part.rooms} | {part.room_levels} "
            f"| {part.room_arrows} | {cycles} | {part.lines:,} |"
        )
    lines = ", ".join(f"{name} {count:,}" for name, count in house.lines.items())
    yield ""
    yield f"- Names of classes that mean more than one thing: {len(house.names)}."
    yield f"- Functions over {LONG_FUNCTION} lines: {len(house.long_functions)}."
    yield f"- Lines outside the parts: {lines}. Python in total: {house.python_lines:,}."


def renew(text: str, modules: list[Module]) -> str:
    """Return a page with its tables updated from the code."""
    tables = {"rooms": rooms_table, "imports": imports_table}

    def replace(found: re.Match[str]) -> str:
        lines = tables[found[2]](modules, found[3])
        return found[1] + "".join(f"{line}\n" for line in lines) + found[5]

    return BLOCK.sub(replace, text)


def renew_figures(text: str, house: House) -> str:
    """Return a page with a checkout's figures."""
    table = "".join(f"{line}\n" for line in figures_table(house))
    return FIGURES.sub(lambda found: found[1] + table + found[2], text)


def main() -> int:
    """Rewrite the pages, or report which are out of date."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--figures", action="store_true", help="also renew the figures")
    args = parser.parse_args()
    modules = read_modules(ROOT)
    num_stale = 0
    for page in pages():
        text = page.read_text(encoding="utf-8")
        renewed = renew(text, modules)
        if args.figures:
            renewed = renew_figures(renewed, measure(ROOT))
        if renewed != text:
            num_stale += 1
            print(f"{page.relative_to(ROOT)}: {'out of date' if args.check else 'rewritten'}")
            if not args.check:
                page.write_text(renewed, encoding="utf-8")
    return 1 if args.check and num_stale else 0


if __name__ == "__main__":
    sys.exit(main())
