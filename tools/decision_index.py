"""Writes docs/decisions/README.md, the index of the decisions.

    python tools/decision_index.py            rewrites it
    python tools/decision_index.py --check    changes nothing; exit code 1 if it is out of date

Number, title and status come from the page: a page is accepted unless another one says that it
supersedes it, or a part of it. The pages state no date and no area, so the index keeps those: a new
page gets the date of its first commit, and you fill in the area.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "decisions"
INDEX = FOLDER / "README.md"
HEAD = """\
# Decisions

One page each: context, choice, price. A choice that is hard to reverse, or a new dependency, gets
one.

This index is written by `python tools/decision_index.py`. Dates are those of the first commit;
areas are filled in by hand.

| | decision | status | date | area | superseded by |
|---|---|---|---|---|---|
"""
ROW = re.compile(r"^\| \[(\d{4})\]\(.*\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
# "This supersedes what 0041 says of charts", "supersedes the last lines of [0112](…)".
SUPERSEDES = re.compile(r"\bsupersedes\s+([^.\d]*?)\[?(\d{4})\b")
UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class Entry:
    """The data about a decision that only the index holds."""

    date: str
    area: str


@dataclass(frozen=True, slots=True)
class Decision:
    """A page: its number, file and title, and the pages it supersedes in whole or in part."""

    number: str
    file: str
    title: str
    supersedes: dict[str, bool]


def read_decisions(folder: Path) -> list[Decision]:
    """Return a folder's decisions by number; pages they supersede map to True if wholly."""
    found = []
    for path in sorted(folder.glob("[0-9]*.md")):
        text = path.read_text(encoding="utf-8")
        heading = text.splitlines()[0].removeprefix("# ")
        title = re.sub(r"^\d{4}: | \([^()]*superseded by \d{4}\)$", "", heading)
        old = {number: not part.strip() for part, number in SUPERSEDES.findall(text)}
        found.append(Decision(path.name[:4], path.name, title, old))
    return found


def read_kept(index: str) -> dict[str, Entry]:
    """Return the dates and areas of an index, by number."""
    return {number: Entry(date, area) for number, date, area in ROW.findall(index)}


def first_commit(file: str) -> str:
    """Return the date of a page's first commit, or `?` if it has none yet."""
    git = ["git", "log", "--follow", "--diff-filter=A", "--format=%as", "--", file]
    done = subprocess.run(git, cwd=FOLDER, capture_output=True, text=True, check=False)
    return done.stdout.split()[-1] if done.stdout.split() else UNKNOWN


def render(decisions: Iterable[Decision], kept: dict[str, Entry]) -> str:
    """Return the index; `kept` has an entry for every decision."""
    decisions = list(decisions)
    newer: dict[str, list[Decision]] = defaultdict(list)
    for decision in decisions:
        for old in decision.supersedes:
            newer[old].append(decision)
    rows = []
    for decision in decisions:
        number, file = decision.number, decision.file
        over = newer[number]
        is_over = any(other.supersedes[number] for other in over)
        status = "superseded" if is_over else "superseded in part" if over else "accepted"
        links = ", ".join(f"[{other.number}]({other.file})" for other in over) or "–"
        date, area = kept[number].date, kept[number].area
        rows.append(
            f"| [{number}]({file}) | {decision.title} | {status} | {date} | {area} | {links} |\n"
        )
    return HEAD + "".join(rows)


def main() -> int:
    """Rewrite the index, or report that it is out of date."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing")
    args = parser.parse_args()
    text = INDEX.read_text(encoding="utf-8")
    kept = read_kept(text)
    decisions = read_decisions(FOLDER)
    for decision in decisions:
        old = kept.get(decision.number, Entry(UNKNOWN, UNKNOWN))
        date = first_commit(decision.file) if old.date == UNKNOWN else old.date
        kept[decision.number] = Entry(date, old.area)
    renewed = render(decisions, kept)
    if renewed == text:
        return 0
    if args.check:
        print(f"{INDEX.relative_to(ROOT)}: out of date")
        return 1
    INDEX.write_text(renewed, encoding="utf-8")
    for decision in decisions:
        if kept[decision.number].area == UNKNOWN:
            print(f"{decision.file}: fill in its area in {INDEX.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
