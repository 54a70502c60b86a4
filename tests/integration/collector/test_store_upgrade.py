"""Upgrades by a made-up migration, killed in the middle; and stores that are not opened."""

import shutil
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

import evenkeel_collector
from evenkeel_collector.store.migrations import read_migrations
from tests.checkout import ROOT
from tests.fixtures.collector_process import (
    PROTOBUF,
    collect_command,
    collector_environment,
    running_collector,
    wait_for,
)
from tests.fixtures.otlp_payload import trace_request
from tests.fixtures.python_process import run_python

MIGRATIONS = read_migrations()
NEWEST = MIGRATIONS[-1].number
LATER = [migration for migration in MIGRATIONS if migration.number > 31]

# A column with a value for old rows; and a table between two others, so that the tokens behind it
# are no longer those of before.
MADE_UP = """
ALTER TABLE requests ADD COLUMN IF NOT EXISTS region String DEFAULT 'none';

ALTER TABLE requests UPDATE region = 'old' WHERE region = 'none' SETTINGS mutations_sync = 1;

CREATE TABLE IF NOT EXISTS feedback_spans AS judgement_spans ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_feedback_spans TO feedback_spans AS
SELECT * FROM judgement_spans WHERE SpanName = 'evenkeel.feedback';

ALTER TABLE spans_to_feedback MODIFY QUERY
SELECT Timestamp AS time, TraceId AS trace_id, SpanId AS span_id, 'made up' AS label
FROM feedback_spans;
"""

# A segment of an older format stays in the log, though the store has it: the collector was killed
# between the two.
STORE_WITH_LOG = """
import sys
from pathlib import Path
from evenkeel_collector.store.storage import insert_segment_file, open_embedded
from tests.fixtures.otlp_payload import old_segment, trace_request

folder = Path(sys.argv[1])
bodies = [
    trace_request(1, {"evenkeel.status": "ok"}),
    trace_request(2, {"gen_ai.latency.e2e": 1.5}, name="llm_request"),
    trace_request(3, {"gen_ai.evaluation.name": "exact"}, name="evenkeel.evaluation"),
    trace_request(4, {"gen_ai.evaluation.score.value": 1.0}, name="evenkeel.feedback"),
]
segment = folder / "log" / "00000000000000000001-node.sealed"
segment.parent.mkdir(parents=True)
bodies = [body.SerializeToString() for body in bodies]
segment.write_bytes(old_segment(1, bodies))
storage = open_embedded(folder / "store")
insert_segment_file(storage.connect(), storage.insert_settings, segment.stem, segment)
"""

# What a newer version does at its start, until it is killed.
CUT_OFF = """
import os, signal, sys
from functools import partial
from pathlib import Path
import clickhouse_connect
from clickhouse_connect.driver.exceptions import DatabaseError
from evenkeel_collector.store.migrations import migrate
from evenkeel_collector.store.storage import SEGMENT_SCHEMA, store_log

folder, beginning = Path(sys.argv[1]), sys.argv[2]
path = str(folder / "store")
client = clickhouse_connect.get_client(interface="chdb", path=path, database="evenkeel")

def render(statement):
    if not statement.strip().startswith(beginning):
        return [statement]
    if beginning == "RENAME":
        return [statement.partition(",")[0], "no further"]
    os.kill(os.getpid(), signal.SIGKILL)

settings = {"format_schema": f"{SEGMENT_SCHEMA}:Segment"}
try:
    migrate(
        client, render=render, before_upgrade=partial(store_log, client, settings, folder / "log")
    )
except DatabaseError as error:
    assert "further" in str(error)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the import path of a newer version: this one with one more migration."""
    folder = tmp_path_factory.mktemp("newer")
    package = Path(evenkeel_collector.__file__).parent
    shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    schema = folder / package.name / "store" / "schema"
    (schema / f"{NEWEST + 1:04d}_made_up.sql").write_text(MADE_UP, encoding="utf-8")
    return f"{folder}:{ROOT}"


def run_program(program: str, *arguments: str, path: str = str(ROOT), code: int = 0) -> None:
    environment = {**collector_environment(), "PYTHONPATH": path}
    done = run_python("-c", program, *arguments, env=environment, cwd=arguments[0])
    assert done.returncode == code, done.stderr


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and its log, as this version leaves them when it is killed."""
    folder = tmp_path_factory.mktemp("written")
    run_program(STORE_WITH_LOG, str(folder))
    return folder


@pytest.fixture
def data_dir(tmp_path: Path, written: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "data", symlinks=True))


@pytest.mark.parametrize(
    "cut_off_at",
    [
        pytest.param(None, id="whole"),
        pytest.param("ALTER TABLE requests UPDATE", id="killed after the column"),
        pytest.param("ALTER TABLE spans_to_feedback", id="killed before the view"),
        pytest.param("RENAME", id="cut off while the view has its other name"),
    ],
)
def test_an_upgrade_loses_and_doubles_nothing(
    data_dir: Path, newer: str, cut_off_at: str | None
) -> None:
    if cut_off_at is not None:
        run_program(CUT_OFF, str(data_dir), cut_off_at, path=newer, code=-signal.SIGKILL)
    stored = ("spans", "requests", "eval_results", "feedback")
    counts = ", ".join(f"(SELECT count() FROM {table})" for table in stored)
    rollup = "(SELECT sum(num_requests) FROM requests_1m)"
    with running_collector(data_dir, wrapper=("env", f"PYTHONPATH={newer}")) as collector:
        assert collector.rows(f"SELECT {counts}, {rollup}") == [(10, 3, 3, 4, 3)]
        assert not list((data_dir / "log").glob("*-node.sealed"))
        body = trace_request(1, {"evenkeel.status": "ok"}).SerializeToString()
        body += trace_request(1, name="evenkeel.feedback").SerializeToString()
        httpx.post(f"{collector.http_url}/v1/traces", content=body, headers=PROTOBUF)
        wait_for(lambda: collector.rows(f"SELECT {counts}, {rollup}") == [(12, 4, 3, 5, 4)])
        regions = "SELECT region, count() FROM requests GROUP BY region ORDER BY region"
        assert collector.rows(regions) == [("none", 1), ("old", 3)]
        assert collector.rows("SELECT label FROM feedback WHERE label != ''") == [("made up",)]
        newest = "SELECT max(number), count() FROM schema_migrations"
        assert collector.rows(newest) == [(NEWEST + 1, len(MIGRATIONS) + 1)]
    assert collector.stderr().count(f"migration applied number={NEWEST + 1:04d}") == 1


RENUMBER = """
import sys
import clickhouse_connect
path = sys.argv[1] + "/store"
client = clickhouse_connect.get_client(interface="chdb", path=path, database="evenkeel")
client.command("TRUNCATE TABLE schema_migrations")
last, checksum = int(sys.argv[2]), sys.argv[3]
rows = ", ".join(f"({i}, 'old', '{checksum}', now64(3))" for i in range(1, last + 1))
client.command(f"INSERT INTO schema_migrations VALUES {rows}")
"""
# Of the last of the 31 migrations that the first one took the place of.
REPLACED = "8a2430c6a0536443fc203eed99d3a1f5c7b6a04ad34faa5a7e2038d5dac47d4f"


def test_a_store_of_the_migrations_before_the_first_gets_only_later_ones(data_dir: Path) -> None:
    run_program(RENUMBER, str(data_dir), "31", REPLACED)
    with running_collector(data_dir) as collector:
        assert collector.rows("SELECT count() FROM schema_migrations") == [(31 + len(LATER),)]
        assert collector.rows("SELECT count() FROM requests") == [(3,)]
    assert collector.stderr().count("migration applied") == len(LATER)


@pytest.mark.parametrize(
    ("last", "checksum", "said"),
    [
        pytest.param("30", REPLACED, "the store is at migration 0030", id="older"),
        pytest.param("31", "another", "migration 0031_base has changed", id="changed"),
        pytest.param(
            str(NEWEST + 1), REPLACED, f"the store has migration {NEWEST + 1:04d}", id="newer"
        ),
    ],
)
def test_a_store_of_another_version_is_refused_in_one_line(
    data_dir: Path, last: str, checksum: str, said: str
) -> None:
    run_program(RENUMBER, str(data_dir), last, checksum)
    result = subprocess.run(
        collect_command(data_dir), capture_output=True, text=True, check=False,
        env=collector_environment(),
    )  # fmt: skip
    assert result.returncode == 2
    assert said in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


OF_ANOTHER_VERSION = """
import sys
import clickhouse_connect
from evenkeel.errors import ConfigurationError
from evenkeel_collector.store.migrations import migrate

client = clickhouse_connect.get_client(interface="chdb", path=sys.argv[1], database="default")
for row in ("30, 'old', 'x'", "31, 'base', 'x'", "9999, 'new', 'x'"):
    client.command("DROP TABLE IF EXISTS schema_migrations")
    try:
        migrate(client, before_upgrade=lambda: sys.exit("an upgrade"), table=(
            "CREATE TABLE schema_migrations ENGINE = Memory AS SELECT c1::UInt32 AS number,"
            f" c2 AS name, c3 AS checksum, now64(3) AS applied_at FROM VALUES(({row}))"
        ))
    except ConfigurationError as error:
        print(error)
"""


def test_a_store_that_is_not_opened_can_be_exported_by_the_version_that_wrote_it(
    tmp_path: Path,
) -> None:
    done = run_python("-c", OF_ANOTHER_VERSION, str(tmp_path / "store"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    old, changed, new = done.stdout.splitlines()
    assert old.startswith("the store is at migration 0030, and this evenkeel only opens")
    assert changed.startswith("migration 0031_base has changed since this store was made")
    assert new.startswith("the store has migration 9999, made by a newer evenkeel: upgrade; ")
    for line in (old, changed, new):
        assert "the version that wrote it opens it" in line
        assert "`evenkeel store export parquet FOLDER`" in line
