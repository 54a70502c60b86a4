"""Run hostile queries: what does the guard let through, and what can a tenant learn of others?

    python bench/hostile_queries.py --queries 100000 --json build/hostile_queries.json

Random queries go through the guard and the engine's own parser. A miss is a query that the guard
allows although the engine finds a setting, a file, a refused function or an unlisted format in it.
Then every function of the engine is applied to a tenant's columns in two stores, one of them with
other tenants' rows in between: alone, and with every constant argument that the engine accepts. A
leak is a different answer from the two stores; a quote is an error that contains a value of the
tenant's rows.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.report import write_report
from evenkeel_collector.query.names import TENANT_FORMATS
from tests.hostile.query_fragments import hostile_queries, parse_all
from tests.hostile.tenant_answers import (
    Question,
    answers,
    questions_of,
    quotes_own_value,
    shows_others,
    telling_questions,
)
from tests.hostile.tenant_shapes import SHAPES

PIECE = 5_000
NUM_REPEATS = 3
# It fails at random, and rarely.
BY_CHANCE = {"aggThrow"}
_FUNCTIONS = """
import chdb
session = chdb.connect()
sql = "SELECT name FROM system.functions WHERE match(name, '^[A-Za-z_0-9]+$') ORDER BY name"
print(bytes(session.query(sql, "TabSeparated").bytes()).decode())
"""
# Those that calls with several arguments are tried on: numbers, times, texts.
COLUMNS_BESIDE = ("service", "slo_class", "finish_reason")
# What may stand beside a column in a call; each call is tried until the engine takes its types.
_BESIDE = (
    "{0}({{}})",
    "{0}({{}}, 'a')", "{0}({{}}, 1)", "{0}({{}}, 0.5)", "{0}({{}}, {{}})", "{0}({{}}, ['a'])",
    "{0}({{}}, [1])", "{0}('a', {{}})", "{0}(1, {{}})", "{0}(['a', 'b'], {{}})", "{0}([{{}}])",
    "{0}({{}}, toDate('2024-01-01'))", "{0}(x -> {{}} != '', [1])", "{0}('%Y-%m-%d', {{}})",
    "{0}({{}}, '%Y-%m-%d')", "{0}({{}}, 'UTC')", "{0}({{}}, 'UInt8')", "{0}({{}}, 'a', 'b')",
    "{0}({{}}, 'a', 1)", "{0}({{}}, 1, 1)", "{0}({{}}, 1, 'a')", "{0}('a', {{}}, 'b')",
    "{0}('a', 'b', {{}})", "{0}('aes-128-ecb', {{}}, '0123456789abcdef')", "{0}(1, {{}}, {{}})",
    "{0}(toUInt8({{}}), 8)", "{0}(1, toUInt8({{}}))", "{0}('a', toUInt8({{}}))",
    "{0}(toDateTime({{}}), 1)", "{0}(toDateTime({{}}))",
)  # fmt: skip
_TAKEN = """
import chdb, json, sys
session = chdb.connect()
taken = []
for call in json.load(sys.stdin):
    value = "CAST(a AS LowCardinality(Nullable(String)))"
    try:
        session.query(f"SELECT toString({call.replace('{}', value)})"
                      " FROM (SELECT materialize('1') AS a) LIMIT 0")
        taken.append(call)
    except RuntimeError:
        pass
print(json.dumps(taken))
"""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of the run.

    Attributes:
        queries: Random queries.
        parsed: Of them, those that the engine can parse.
        admitted: Of them, those that may run.
        misses: Of them, those that should not.
        questions: What a tenant asked both stores.
        undetermined: Answers that differ from one time to the next in one store: not compared.
        leaks: Answers that others' rows change.
        quotes: Errors that hold a value of the tenant's own rows.
        seconds: How long all took.
    """

    queries: int
    parsed: int
    admitted: int
    misses: list[str]
    questions: int
    undetermined: int
    leaks: list[str]
    quotes: list[str]
    seconds: float


def _functions() -> list[str]:
    command = [sys.executable, "-c", _FUNCTIONS]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def _taken(names: list[str]) -> list[str]:
    """Return the calls of functions with several arguments whose types the engine takes."""
    calls = [form.format(name) for name in names for form in _BESIDE]
    command = [sys.executable, "-c", _TAKEN]
    done = subprocess.run(command, input=json.dumps(calls), stdout=subprocess.PIPE, text=True,
                          check=True)  # fmt: skip
    found: list[str] = json.loads(done.stdout)
    return found


def _questions(names: list[str]) -> list[Question]:
    alone = [f"{name}({{}})" for name in names]
    taken = _taken(names)
    return [
        *telling_questions(sorted(TENANT_FORMATS)),
        *(Question(sql) for sql in SHAPES),
        *(Question(f"SELECT {name}()") for name in names),
        *questions_of([call for call in taken if call in alone]),
        *questions_of([call for call in taken if call not in alone], COLUMNS_BESIDE),
    ]


def _compare(questions: list[Question]) -> tuple[list[str], list[str], int]:
    """Return the leaks, the quotes, and how many answers are not determined."""
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor() as pool:
        folder = Path(name)
        asking = pool.submit(answers, folder / "alone", questions, has_others=False)
        among = answers(folder / "among", questions, has_others=True)
        alone = asking.result()
        differ = [
            (question, first, second)
            for question, first, second in zip(questions, alone, among, strict=True)
            if first != second or shows_others(question, second)
        ]
        # A non-deterministic answer proves nothing.
        asked = [each[0] for each in differ for _ in range(NUM_REPEATS)]
        again = answers(folder / "again", asked, has_others=False)
    leaks, undetermined = [], 0
    for number, (question, first, second) in enumerate(differ):
        repeated = {first, *again[number * NUM_REPEATS : (number + 1) * NUM_REPEATS]}
        if len(repeated) == 1 or shows_others(question, second):
            leaks.append(question.sql)
        else:
            undetermined += 1
    quotes = [
        question.sql
        for question, answer in zip(questions, alone, strict=True)
        if quotes_own_value(question, answer)
    ]
    return leaks, quotes, undetermined


def main() -> int:
    """Run it, print the figures, and return 1 if there is a miss, a leak or a quote."""
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
    names = [name for name in _functions()[: args.functions] if name not in BY_CHANCE]
    questions = _questions(names)
    leaks, quotes, undetermined = _compare(questions)
    found = Found(
        queries=args.queries,
        parsed=parsed,
        admitted=admitted,
        misses=misses,
        questions=len(questions),
        undetermined=undetermined,
        leaks=leaks,
        quotes=quotes,
        seconds=round(time.monotonic() - begin_s, 1),
    )
    for name, value in asdict(found).items():
        print(f"{name}: {value}")
    machine = {"machine": platform.machine(), "cores": os.cpu_count()}
    write_report(args.json, machine | asdict(found))
    return 1 if found.misses or found.leaks or found.quotes else 0


if __name__ == "__main__":
    sys.exit(main())
