"""The cluster's DDL, parsed by the engine; and its views, run without the cluster."""

import re
from pathlib import Path

from evenkeel.request_record import REQUEST_FIELDS, RequestField
from evenkeel.slo.model import Indicator, Metric
from evenkeel_collector.store.cluster import cluster_schema, migrations_table
from evenkeel_collector.store.judged_sql import KeyedIndicator, judged_view
from evenkeel_collector.store.migrations import read_migrations
from evenkeel_collector.store.request_columns import view_query
from evenkeel_collector.store.rollups import view_statements
from tests.fixtures.collector_process import collector_environment
from tests.fixtures.python_process import run_python

MIGRATIONS = read_migrations()
SCHEMA = cluster_schema("prod", MIGRATIONS)
STATEMENTS = [
    text
    for migration in MIGRATIONS
    for statement in migration.statements
    for text in SCHEMA.render(statement)
]
SLOW = KeyedIndicator("chat@1", Indicator(Metric.TTFT, 0.5, {"model": "m"}))
FIELDS = [
    *REQUEST_FIELDS.values(),
    RequestField("num_retries", "evenkeel.num_retries", "Nullable(UInt32)", ""),
]
for field in FIELDS:
    if field.column is not None:
        STATEMENTS += SCHEMA.render(
            f"ALTER TABLE requests ADD COLUMN IF NOT EXISTS {field.name} {field.column}"
        )
STATEMENTS += SCHEMA.render("ALTER TABLE spans_to_requests MODIFY QUERY\n" + view_query(FIELDS))
RENAME = "RENAME TABLE spans_to_requests TO spans_to_requests__changed"
STATEMENTS += SCHEMA.render(RENAME) + SCHEMA.render(judged_view())
STATEMENTS += [text for each in view_statements([SLOW]) for text in SCHEMA.render(each)]


def run(tmp_path: Path, program: str, statements: list[str]) -> str:
    files = []
    for number, statement in enumerate(statements):
        files.append(tmp_path / f"{number}.sql")
        files[-1].write_text(statement)
    result = run_python(
        "-c", program, str(tmp_path / "store"), *map(str, files), env=collector_environment()
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def test_every_statement_is_one_that_the_engine_parses(tmp_path: Path) -> None:
    program = (
        "import chdb, sys\n"
        "session = chdb.connect(sys.argv[1])\n"
        "for path in sys.argv[2:]:\n"
        "    ast = session.query('EXPLAIN AST ' + open(path).read(), 'TabSeparated').bytes()\n"
        "    print(ast.decode().split(chr(10))[0])\n"
    )
    lines = run(tmp_path, program, [*STATEMENTS, migrations_table("prod")]).splitlines()
    assert len(lines) == len(STATEMENTS) + 1
    assert {line.split()[0] for line in lines} == {"CreateQuery", "AlterQuery", "Rename"} | {
        "DropQuery" for text in STATEMENTS if text.startswith("DROP")
    }


def test_a_span_goes_through_the_local_tables_of_its_node(tmp_path: Path) -> None:
    single = []
    for statement in STATEMENTS:
        if "ENGINE = Distributed" in statement or re.match(
            "CREATE (OR REPLACE )?VIEW|DROP", statement
        ):
            continue
        if re.match(rf"ALTER TABLE ({'|'.join(SCHEMA.tables)}) ", statement):
            continue  # of the Distributed table
        plain = statement.replace(" ON CLUSTER 'prod'", "")
        plain = re.sub(r"Replicated(\w*MergeTree)\([^)]*\)", r"\1", plain)
        single.append(plain.replace("= replicated_dedup", "= non_replicated_dedup"))
        single[-1] = re.sub(r"\breplicated_dedup", "non_replicated_dedup", single[-1])
    program = (
        "import io, sys, time, clickhouse_connect\n"
        "from evenkeel_collector.log.segment_format import encode_segment\n"
        "from evenkeel_collector.store.storage import SEGMENT_SCHEMA, insert_segment\n"
        "from tests.fixtures.otlp_payload import trace_request\n"
        "path = sys.argv[1]\n"
        "first = clickhouse_connect.get_client(interface='chdb', path=path)\n"
        "first.command('CREATE DATABASE evenkeel ENGINE = Atomic')\n"
        "client = clickhouse_connect.get_client(interface='chdb', path=path, database='evenkeel')\n"
        "for file in sys.argv[2:]: client.command(open(file).read())\n"
        "body = trace_request(3, {'evenkeel.status': 'ok'}).SerializeToString()\n"
        "settings = {'format_schema': f'{SEGMENT_SCHEMA}:Segment'}\n"
        "for _ in range(2):\n"
        "    segment = io.BytesIO(encode_segment('test', time.time_ns(), [body]))\n"
        "    insert_segment(client, settings, 'token', segment)\n"
        "for table in ('spans', 'requests'):\n"
        "    print(client.query(f'SELECT count() FROM {table}_local').first_row[0])\n"
        "for table in ('requests_1m', 'requests_1h'):\n"
        "    print(client.query(f'SELECT sum(num_requests) FROM {table}_local').first_row[0])\n"
    )
    assert run(tmp_path, program, single).split() == ["3", "3", "3.0", "3.0"]
