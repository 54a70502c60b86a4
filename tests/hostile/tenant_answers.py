"""What a tenant is answered by a store that holds its rows, with or without those of others.

Run as a program: a process can have one store open.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from evenkeel_collector.query.engine import Query, QueryEngine, QueryError, QueryLimits
from evenkeel_collector.store.storage import open_embedded
from tests.checkout import ROOT

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
    # What an index makes of the bounds of everybody's rows.
    "SELECT count() FROM requests WHERE accurateCast(toUnixTimestamp(time), 'UInt32') > 0",
    "SELECT count() FROM requests WHERE accurateCast(toUnixTimestamp64Second(time), 'UInt32') > 0",
    "SELECT count() FROM requests WHERE toDecimal32(toUnixTimestamp64Second(time), 0) > 0",
    "SELECT count() FROM requests WHERE accurateCast(toYear(time) - 2000, 'UInt8') < 100",
    "SELECT count() FROM requests WHERE toDate(time) < '2100-01-01'",
    "SELECT count() FROM requests WHERE toDateTime(time) < '2100-01-01 00:00:00'",
    "SELECT count() FROM requests WHERE isNotNull(toUInt8(substring(model, 2, 1)))",
    "SELECT count() FROM engine_state WHERE isNotNull(toUInt8(name))",
    # Every other way to a table.
    "SELECT base64Decode(route) FROM evenkeel.requests",
    "SELECT base64Decode(evenkeel.requests.route) FROM `evenkeel`.`requests`",
    "SELECT base64Decode(e.route) FROM evenkeel.requests AS e JOIN evenkeel.requests AS evenkeel"
    " ON e.route = evenkeel.route",
    "WITH evenkeel AS (SELECT * FROM evenkeel.requests) SELECT base64Decode(route) FROM evenkeel",
    "SELECT base64Decode(x) FROM view(SELECT route AS x FROM evenkeel.requests)",
    "SELECT count() FROM spans WHERE 'x' IN (SELECT base64Decode(route) FROM evenkeel.requests)",
    "SELECT (SELECT groupArray(base64Decode(route)) FROM requests)",
    "SELECT base64Decode(replaceOne(model, 'globex-model0', '!'))"
    " FROM (SELECT 'YWJj' || substring(model, 9) AS model FROM requests)",
    "SELECT toUInt8(replaceOne(service, 'globex-number0', '!')) FROM requests",
    "SELECT groupArray(base64Decode(model)) FROM requests_1m",
    "SELECT toTypeName(model), toTypeName(tenant) FROM requests_1m",
    "SELECT base64Decode(finish_reason) AS x, count() FROM requests GROUP BY x ORDER BY x",
    "SELECT count() FROM requests AS a JOIN requests AS b"
    " ON base64Decode(a.finish_reason) = base64Decode(b.finish_reason)",
    "SELECT arrayMap(x -> toUInt8(x), mapKeys(attributes)) FROM engine_state",
    "SELECT mapApply((k, v) -> (toUInt8(k), toUInt8(v)), refused_numbers) FROM requests",
    "SELECT arrayMap(x -> toUInt8(x), mapValues(refused_numbers)) FROM requests",
    "SELECT refused_numbers.keys, refused_numbers.values FROM requests",
    "SELECT arrayMap(x -> toUInt8(x), Events.Name) FROM spans",
    "SELECT toUInt8(n) FROM spans ARRAY JOIN Events.Name AS n",
    "SELECT uniq(model), uniqExact(model), min(model), max(model), any(model) FROM requests",
    "SELECT count() FROM requests_1m FINAL",
    "SELECT stochasticLinearRegression(1, ttft_s) FROM requests",
    "SELECT stochasticLogisticRegressionIf(1, ttft_s, 1) FROM requests",
    "SELECT currentDatabase()", "SELECT 1 AS evenkeel", "SELECT nothing FROM evenkeel.requests",
    "SELECT * FROM evenkeel.nothing", "DESCRIBE TABLE evenkeel.requests",
    "EXISTS TABLE evenkeel.requests",
)  # fmt: skip
# Columns with dictionaries that tenants share, each with own values that some functions can read;
# of others' values most cannot be read so.
KINDS: Mapping[str, tuple[str, ...]] = {
    "service": ("1", "17", "42"),
    "operation": ("2024-01-02", "2024-02-03"),
    "slo_class": ("2024-01-02 03:04:05", "2025-06-07 08:09:10"),
    "route": ("10.0.0.1", "192.168.7.8"),
    "prompt_name": ("61f0c404-5cb3-11e7-907b-a6006ad3dba0",),
    "prompt_version": ('{"a": 17}', '{"a": [1, 2]}'),
    "finish_reason": ("YWJjZGVm", "MTIzNDU2"),
    "error_type": ("POINT (1 2)",),
    "response_cache": ("2001:db8::7", "::17"),
    "source": ("01ARZ3NDEKTSV4RRFFQ69G5FAV",),
}
# The same of keys and values of maps, and of nested columns.
_INNER = {
    "arrayJoin(mapKeys(attributes))": "engine_state",
    "arrayJoin(mapValues(refused_numbers))": "requests",
    "arrayJoin(Events.Name)": "spans",
    "model": "requests_1m",
}
SETTINGS = (
    (), (("max_block_size", "1"),), (("max_threads", "1"),), (("extremes", "1"),),
    (("output_format_write_statistics", "1"),), (("max_result_rows", "2"),),
    (("max_memory_usage", "3000000"),), (("max_result_bytes", "9000"),),
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


def questions_with(functions: Iterable[str]) -> list[Question]:
    """Return questions that put our columns through functions of the engine."""
    calls = [f"{name}({{}})" for name in functions]
    return [*(Question(f"SELECT {call.format('')}") for call in calls), *questions_of(calls)]


def questions_of(
    calls: Iterable[str], columns: Iterable[str] = ("trace_id", "ttft_s", *KINDS)
) -> list[Question]:
    """Return questions that put our columns into calls, such as `leftPad({}, 3)`."""
    places = {**dict.fromkeys(columns, "requests"), **_INNER}
    return [
        Question(
            "SELECT arraySort(groupArray(x)) FROM"
            f" (SELECT toString({call.replace('{}', column)}) AS x FROM {table})"
        )
        for call in calls
        for column, table in places.items()
    ]


def shows_others(question: Question, answer: str) -> bool:
    """Whether an answer holds a value of others' rows that its query does not hold."""
    return SECRET not in question.sql and (SECRET in answer or SECRET.encode().hex() in answer)


def quotes_own_value(question: Question, answer: str) -> bool:
    """Whether an error quotes a value of the tenant's rows that its query does not hold."""
    code, text = json.loads(answer)[:2]
    own = [value for values in KINDS.values() for value in values if len(value) > 5]
    return isinstance(code, int) and any(
        value in text and value not in question.sql for value in (*own, "own0")
    )


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
        number = str(i % 5) if is_own else f"{SECRET}-number{i % 50}"
        time = BEGIN + timedelta(seconds=(i if is_own else (i % 400) / 10))
        trace = f"own{i:03d}" if is_own else f"{SECRET}{i:05d}"
        kinds = [values[i % len(values)] if is_own else number for values in KINDS.values()]
        refused = {number: number}
        requests.append([time, trace, model, name, "ok", 0.1 + i / 1000, 1.0, refused, *kinds])
        attributes = {"evenkeel.tenant": name}
        spans.append([time, trace, "chat", name, attributes, [time], [number], [attributes]])
        states.append([time, "up", attributes, float(i), refused])
    if has_others:
        # Bounds that an index keeps: in days of their own, and in those of the tenant's rows.
        for year in (1902, 2150):
            far = datetime(year, 1, 1, tzinfo=UTC)
            requests.append(
                [far, SECRET, SECRET, SECRET, "ok", 1.0, 1.0, {}, *[SECRET] * len(KINDS)]
            )
    for table, columns, rows in (
        ("requests", "time trace_id model tenant status ttft_s sample_weight refused_numbers "
         + " ".join(KINDS), requests),
        ("spans", "Timestamp TraceId SpanName ServiceName SpanAttributes Events.Timestamp "
         "Events.Name Events.Attributes", spans),
        ("engine_state", "time name resource_attributes value attributes", states),
    ):  # fmt: skip
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
