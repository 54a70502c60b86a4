"""Hostile queries at length: what the guard lets through, and what a tenant learns of others.

    python bench/hostile_queries.py --queries 100000 --json build/hostile_queries.json

Random queries go through the guard and through the engine's own parser; a miss is one that may run
and in which the engine finds a setting, a file, a refused function or a format that is not listed.
Then every function of the engine is applied to a tenant's columns in two stores, one with others'
rows between its own; a leak is an answer that is not the same in both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from collector.query_names import TENANT_FORMATS
from tests.hostile.query_fragments import hostile_queries, parse_all
from tests.hostile.tenant_answers import (
    SECRET,
    Question,
    answers,
    questions_with,
    telling_questions,
)

PIECE = 5_000
_FUNCTIONS = """
import chdb
session = chdb.connect()
sql = "SELECT name FROM system.functions WHERE match(name, '^[A-Za-z_0-9]+$') ORDER BY name"
print(bytes(session.query(sql, "TabSeparated").bytes()).decode())
"""


@dataclass(frozen=True, slots=True)
class Found:
    """What came of it.

    Attributes:
        queries: Random queries.
        parsed: Of them, those that the engine can parse.
        admitted: Of them, those that may run.
        misses: Of them, those that should not.
        questions: What a tenant asked both stores.
        undetermined: Answers that differ from one time to the next in one store: not compared.
        leaks: Answers that others' rows change.
        seconds: How long all took.
    """

    queries: int
    parsed: int
    admitted: int
    misses: list[str]
    questions: int
    undetermined: int
    leaks: list[str]
    seconds: float


def _functions() -> list[str]:
    command = [sys.executable, "-c", _FUNCTIONS]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def _leaks(questions: list[Question]) -> Iterator[tuple[Question, bool | None]]:
    """Yield each question and whether it leaks; None if its answer is not determined."""
    with tempfile.TemporaryDirectory() as folder:
        alone = answers(Path(folder) / "alone", questions * 2, has_others=False)
        among = answers(Path(folder) / "among", questions, has_others=True)
    for question, first, again, second in zip(
        questions, alone, alone[len(questions) :], among, strict=False
    ):
        shows = SECRET in second.replace(question.sql, "") or SECRET.encode().hex() in second
        if shows:
            yield question, True
        else:
            yield question, None if first != again else first != second


def main() -> int:
    """Run it, print the figures, and return 1 if there is a miss or a leak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--functions", type=int, help="only the first N functions of the engine")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    begin_s = time.monotonic()
    parsed = admitted = 0
    misses: list[str] = []
    for begin in range(0, args.queries, PIECE):
        count = min(PIECE, args.queries - begin)
        for each in parse_all(hostile_queries(args.seed + begin, count)):
            parsed += each.formatted is not None
            if each.formatted is not None and each.refusal is None:
                admitted += 1
                if each.found:
                    misses.append(f"{each.formatted}: {', '.join(each.found)}")
    names = _functions()[: args.functions]
    questions = telling_questions(sorted(TENANT_FORMATS)) + questions_with(names)
    results = list(_leaks(questions))
    found = Found(
        queries=args.queries,
        parsed=parsed,
        admitted=admitted,
        misses=misses,
        questions=len(questions),
        undetermined=sum(leaks is None for _, leaks in results),
        leaks=[question.sql for question, leaks in results if leaks],
        seconds=round(time.monotonic() - begin_s, 1),
    )
    for name, value in asdict(found).items():
        print(f"{name}: {value}")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        machine = {"machine": platform.machine(), "cores": os.cpu_count()}
        args.json.write_text(json.dumps(machine | asdict(found), indent=2), encoding="utf-8")
    return 1 if found.misses or found.leaks else 0


if __name__ == "__main__":
    sys.exit(main())
