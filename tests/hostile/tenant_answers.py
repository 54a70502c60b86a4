"""What a tenant is answered by a store that holds its rows, with or without those of others.

Run as a program: a process can have one store open.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from collector.query_engine import Query, QueryEngine, QueryError, QueryLimits
from collector.storage import open_embedded

ROOT = Path(__file__).parents[2]
TENANT = "acme"
SECRET = "globex"
NUM_OWN, NUM_OTHERS = 40, 9_000
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Question:
    """One query as a tenant may send it."""

    sql: str
    format: str = "TabSeparated"
    settings: tuple[tuple[str, str], ...] = ()


COLUMNS = ("tenant", "model", "trace_id", "time", "ttft_s")
# What would tell how much the engine read, where it lay, or what others' values are.
SQL = (
    "SELECT count() FROM requests",
    "SELECT trace_id, model FROM requests ORDER BY trace_id LIMIT 3",
    "SELECT length(model) FROM requests LIMIT 3",
    "SELECT length(model) FROM requests ORDER BY time LIMIT 3 OFFSET 1",
    "SELECT model, count() FROM requests GROUP BY model WITH TOTALS ORDER BY model LIMIT 1",
    "SELECT DISTINCT model FROM requests ORDER BY model LIMIT 2",
    "SELECT count() FROM requests WHERE ttft_s > 0.12",
    "SELECT count() FROM requests FINAL",
    "SELECT max(_part_offset) FROM requests",
    "SELECT count() FROM requests WHERE _part_offset > 100",
    "SELECT max(`requests._part_offset`) FROM requests",
    "SELECT max(r._part_offset) FROM requests AS r",
    "SELECT COLUMNS('_part_offset') FROM requests",
    "SELECT count(), uniq(_part) FROM requests",
    "SELECT _block_number, _partition_id FROM spans",
    "SELECT count() FROM requests SAMPLE 0.1",
    "SELECT count() FROM requests WHERE indexHint(trace_id = 'globex00050')",
    "SELECT groupUniqArray(lowCardinalityKeys(model)) FROM requests",
    "SELECT dumpColumnStructure(model) FROM requests LIMIT 1",
    "SELECT blockSize(), rowNumberInAllBlocks() FROM requests",
    "SELECT sum(toUInt32(substring(model, 2))) FROM requests",
    "SELECT max(throwIf(model LIKE 'globex%')) FROM requests",
    "SELECT count() FROM requests PREWHERE model = 'globex-model1'",
    "SELECT * FROM merge('evenkeel', 'requests') LIMIT 1",
    "SELECT * FROM system.parts", "SELECT total_rows FROM system.tables", "SHOW TABLES",
    "SELECT * FROM system.processes", "SELECT * FROM system.columns WHERE table = 'requests'",
    "SELECT * FROM system.query_cache", "SELECT * FROM system.events", "SELECT * FROM system.disks",
    "SELECT * FROM system.errors", "SELECT * FROM system.query_condition_cache",
    "EXPLAIN ESTIMATE SELECT * FROM requests", "EXPLAIN indexes = 1 SELECT * FROM requests",
    "SELECT * FROM (EXPLAIN ESTIMATE SELECT * FROM requests)",
    "DESCRIBE TABLE requests", "EXISTS TABLE requests", "SHOW CREATE TABLE requests",
    "SELECT throwIf(1) FROM requests", "SELECT nothing FROM requests", "SELECT toDate('x')",
    "SELECT toUInt8(trace_id) FROM requests", "SELECT a.* FROM requests AS a, requests AS b, x",
    "SELECT count() FROM requests AS a JOIN requests AS b ON a.model = b.model",
    "SELECT sum(num_requests) FROM requests_1m", "SELECT slo FROM slo_objectives",
    "SELECT groupArray(number) FROM numbers(100000000)",
    "SELECT number FROM numbers(3000000)",
)  # fmt: skip
SETTINGS = (
    (), (("max_block_size", "1"),), (("max_threads", "1"),), (("extremes", "1"),),
    (("output_format_write_statistics", "1"),), (("max_result_rows", "2"),),
    (("max_memory_usage", "3000000"),),
    (("max_result_rows", "2"), ("result_overflow_mode", "break")), (("limit", "2"),),
)  # fmt: skip


def telling_questions(formats: Iterable[str]) -> list[Question]:
    """Return questions whose answers might tell of others' rows."""
    return [
        *(Question(sql) for sql in SQL),
        *(Question(sql, settings=settings) for sql in SQL[:3] for settings in SETTINGS),
        *(Question(sql, "JSON", settings) for sql in SQL[1:3] for settings in SETTINGS),
        *(Question(sql, name) for sql in SQL[1:2] for name in formats),
        *(Question(f"SELECT min({name}), max({name}) FROM requests") for name in COLUMNS),
    ]


def questions_with(functions: Sequence[str]) -> list[Question]:
    """Return questions that put our columns through functions of the engine."""
    return [
        *(Question(f"SELECT {name}()") for name in functions),
        *(
            Question(
                f"SELECT arraySort(groupArray(x)) FROM"
                f" (SELECT toString({name}({column})) AS x FROM requests)"
            )
            for name in functions
            for column in ("model", "trace_id", "ttft_s")
        ),
    ]


def answers(folder: Path, questions: list[Question], has_others: bool) -> list[str]:
    """Return what each question is answered, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.tenant_answers", str(folder), str(int(has_others))],
        input=json.dumps([asdict(question) for question in questions]),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: list[str] = json.loads(done.stdout)
    return found


def _fill(client: Any, has_others: bool) -> None:
    """Insert a tenant's rows, and others' between them, so that they share parts and blocks."""
    requests, spans, states = [], [], []
    for i in range(NUM_OWN + (NUM_OTHERS if has_others else 0)):
        is_own = i < NUM_OWN
        name = TENANT if is_own else f"{SECRET}{i % 7}"
        model = f"m{i % 3}" if is_own else f"{SECRET}-model{i % 50}"
        time = BEGIN + timedelta(seconds=(i if is_own else (i % 400) / 10))
        trace = f"own{i:03d}" if is_own else f"{SECRET}{i:05d}"
        requests.append([time, trace, model, name, "ok", 0.1 + i / 1000, 1.0])
        attributes = {"evenkeel.tenant": name}
        spans.append([time, trace, "chat", name, attributes])
        states.append([time, "up", attributes, float(i)])
    for table, columns, rows in (
        ("requests", "time trace_id model tenant status ttft_s sample_weight", requests),
        ("spans", "Timestamp TraceId SpanName ServiceName SpanAttributes", spans),
        ("engine_state", "time name resource_attributes value", states),
    ):
        client.insert(table, rows, column_names=columns.split())


def _main(folder: Path, has_others: bool) -> None:
    questions = json.load(sys.stdin)
    storage = open_embedded(folder)
    client = storage.connect()
    _fill(client, has_others)
    engine = QueryEngine(folder, QueryLimits())
    found = []
    for question in questions:
        query = Query(
            question["sql"],
            "evenkeel",
            dict(question["settings"]),
            {},
            question["format"],
            TENANT,
            tag="tag",
        )
        try:
            result = engine.run(query)
            told = [result.data.hex(), result.format, result.rows_read, result.bytes_read]
        except QueryError as error:
            told = [error.code, str(error)]
        found.append(json.dumps(told))
    engine.close()
    client.close()
    storage.close()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2] == "1")
