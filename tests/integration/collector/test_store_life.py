"""What becomes of stored rows over time: retention, repeated segments, backups, exports."""

import json
import subprocess
import time
from pathlib import Path

import httpx
import pyarrow.parquet

from tests.checkout import ROOT
from tests.fixtures.collector_process import (
    CollectorProcess,
    collector_environment,
    copy_new_store,
    running_collector,
    running_unread_collector,
    wait_for,
)
from tests.fixtures.otlp_payload import trace_request
from tests.fixtures.python_process import run_python

PROTOBUF = {"content-type": "application/x-protobuf"}
DAY_NS = 86400 * 10**9


def send(collector: CollectorProcess, num_spans: int, tenant: str, days_ago: int) -> None:
    body = trace_request(
        num_spans,
        {"evenkeel.status": "ok", "gen_ai.request.model": "m", "evenkeel.tenant": tenant},
        start_ns=time.time_ns() - days_ago * DAY_NS,
    ).SerializeToString()
    answer = httpx.post(f"{collector.http_url}/v1/traces", content=body, headers=PROTOBUF)
    assert answer.status_code == 200


def run_program(data_dir: Path, program: str) -> str:
    """Run a program with a client of the store of a collector that does not run."""
    prelude = (
        "import clickhouse_connect, sys\n"
        "client = clickhouse_connect.get_client(interface='chdb', path=sys.argv[1],"
        " database='evenkeel')\n"
    )
    result = run_python(
        "-c", prelude + program, str(data_dir / "store"), check=True, env=collector_environment()
    )
    return result.stdout


def test_each_tenants_rows_go_when_their_time_has_come(tmp_path: Path) -> None:
    config = tmp_path / "evenkeel.toml"
    config.write_text('[collector]\nretention = "requests=30d, acme/requests=5d"\n')
    by_tenant = "SELECT tenant, count() FROM requests GROUP BY tenant ORDER BY tenant"
    with running_collector(tmp_path) as collector:
        for tenant, days_ago in (("acme", 10), ("acme", 1), ("other", 10), ("other", 40)):
            send(collector, 2, tenant, days_ago)
        wait_for(lambda: collector.rows("SELECT count() FROM spans") == [(8,)])
    run_program(tmp_path, "client.command('OPTIMIZE TABLE requests FINAL')")
    with running_collector(tmp_path) as collector:
        assert collector.rows(by_tenant) == [("acme", 2), ("other", 2)]
        assert collector.rows("SELECT count() FROM spans") == [(8,)]
        assert "retention changed" in collector.stderr()
    (tmp_path / "stderr.txt").write_text("")
    with running_collector(tmp_path) as collector:
        assert "retention changed" not in collector.stderr()
    config.write_text("")
    with running_collector(tmp_path) as collector:
        assert "table=requests ttl=none" in collector.stderr()
        (ddl,) = collector.rows("SHOW CREATE TABLE requests")[0]
        assert "TTL" not in ddl


STORE_TWICE = """
import sys
from pathlib import Path
from evenkeel_collector.log.segment_format import encode_segment
from evenkeel_collector.store.storage import insert_segment_file, open_embedded
from tests.fixtures.otlp_payload import trace_request

folder = Path(sys.argv[1])
bodies = [
    trace_request(5, {"evenkeel.status": "ok", "gen_ai.request.model": "m"}),
    trace_request(2, {"gen_ai.latency.e2e": 1.5}, name="llm_request"),
    trace_request(1, name="evenkeel.evaluation"),
]
bodies = [body.SerializeToString() for body in bodies]
(folder / "segment").write_bytes(encode_segment("one", 1_795_168_800_000_000_000, bodies))
storage = open_embedded(folder / "store")
client = storage.connect()
for _ in range(2):
    insert_segment_file(client, storage.insert_settings, "one", folder / "segment")
tables = (
    "count() FROM spans", "count() FROM requests", "sum(num_requests) FROM requests_1m",
    "count() FROM eval_results",
)
print([client.query(f"SELECT {each}").first_row[0] for each in tables])
"""


def test_a_segment_of_the_first_start_is_known_at_the_next(tmp_path: Path) -> None:
    # The first start makes the views, and changes the query of some.
    for _ in range(2):
        done = run_python(
            "-c", STORE_TWICE, str(tmp_path), check=True, env=collector_environment(), cwd=ROOT
        )
        assert done.stdout.strip() == "[8, 7, 7.0, 1]"


CUT_OFF = """
import shutil, sys
from pathlib import Path
store = Path(sys.argv[1]) / "store"
num_parts = 0
for table in store.glob("store/*/*/deduplication_logs"):
    notes = sorted(table.glob("*.txt"))[-1].read_text().splitlines()
    part = table.parent / notes[-1].split("\\t")[1] if notes else None
    if part is not None and part.is_dir():
        part.rename(part.with_name("tmp_insert_" + part.name))
        num_parts += 1
print(num_parts)
"""


def test_a_segment_whose_insert_was_cut_off_is_not_taken_for_stored(tmp_path: Path) -> None:
    """The engine notes a part's token before it names the part: killed in between, it has none."""
    copy_new_store(tmp_path / "store")
    outputs = []
    for program in (STORE_TWICE, CUT_OFF, STORE_TWICE):
        done = run_python(
            "-c", program, str(tmp_path), check=True, env=collector_environment(), cwd=ROOT
        )
        outputs.append(done.stdout.strip())
    assert outputs[0] == outputs[2] == "[8, 7, 7.0, 1]"
    assert int(outputs[1]) >= 4, "spans, requests, requests_1m, eval_results"


def run_store(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = (
        "import sys\nfrom evenkeel.cli import _run\nfrom evenkeel.errors import EvenkeelError\n"
        "from evenkeel_collector.commands.store import STORE\n"
        "try:\n    sys.exit(_run([STORE], ['store', *sys.argv[1:]]))\n"
        "except EvenkeelError as error:\n    sys.exit(print(error, file=sys.stderr) or 2)\n"
    )
    return run_python("-c", program, *arguments, timeout=300, env=collector_environment())


def test_a_backup_is_a_whole_collector_again_and_exports_hold_every_row(tmp_path: Path) -> None:
    data, backup, again = tmp_path / "data", tmp_path / "backup.tar", tmp_path / "again"
    with running_collector(data) as collector:
        send(collector, 30, "acme", 0)
        send(collector, 20, "acme", 3)
        wait_for(lambda: collector.rows("SELECT sum(num_requests) FROM requests_1h") == [(50,)])
        busy = run_store("backup", str(backup), "--data-dir", str(data))
        assert busy.returncode == 2
        assert "another collector is using" in busy.stderr
    (data / "log" / "quarantine").mkdir(exist_ok=True)
    (data / "log" / "quarantine" / "x.damaged").write_bytes(b"kept")

    done = run_store("backup", str(backup), "--data-dir", str(data), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] > 20
    assert run_store("backup", str(backup), "--data-dir", str(data)).returncode == 2

    exported = run_store(
        "export", "parquet", str(tmp_path / "out"), "--data-dir", str(data), "--json"
    )
    assert exported.returncode == 0, exported.stderr
    files = sorted((tmp_path / "out" / "requests").iterdir())
    assert len(files) == 2
    assert sum(pyarrow.parquet.read_table(path).num_rows for path in files) == 50
    rollup = pyarrow.parquet.read_table(next((tmp_path / "out" / "requests_1h").iterdir()))
    assert "ttft_s" in rollup.column_names

    restored = run_store("restore", str(backup), "--data-dir", str(again))
    assert restored.returncode == 0, restored.stderr
    assert run_store("restore", str(backup), "--data-dir", str(again)).returncode == 2
    assert (again / "log" / "quarantine" / "x.damaged").read_bytes() == b"kept"
    with running_collector(again) as collector:
        assert collector.rows("SELECT count() FROM spans") == [(50,)]
        send(collector, 1, "acme", 0)
        wait_for(lambda: collector.rows("SELECT sum(num_requests) FROM requests_1h") == [(51,)])


MERGING = """
import sys
from pathlib import Path
from evenkeel_collector.store import export
from evenkeel_collector.store.storage import open_embedded

class Merging:
    def __init__(self, client):
        self._client = client

    def query(self, *arguments, **more):
        found = self._client.query(*arguments, **more)
        self._client.command("OPTIMIZE TABLE requests_1m FINAL")
        return found

    def __getattr__(self, name):
        return getattr(self._client, name)

storage = open_embedded(Path(sys.argv[1]))
client = storage.connect()
client.command("SYSTEM STOP MERGES requests_1m")
for _ in range(2):
    client.command(
        "INSERT INTO requests_1m (minute, num_requests) SELECT '2026-01-02 03:04:00', 1"
        " SETTINGS insert_deduplicate = 0"
    )
assert client.query("SELECT count() FROM requests_1m").first_row == (2,)
client.command("SYSTEM START MERGES requests_1m")
print(export._export(Merging(client), "requests_1m", Path(sys.argv[2])))
client.close()
storage.close()
"""


def test_an_export_may_be_merged_meanwhile_and_go_anywhere(tmp_path: Path) -> None:
    # For the engine, the name of this folder could be a pattern.
    store, out = tmp_path / "store", tmp_path / "of {a,b} or *?"
    copy_new_store(store)
    done = run_python("-c", MERGING, str(store), str(out), env=collector_environment())
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Exported(files=1, rows=1)\n"
    table = pyarrow.parquet.read_table(out / "requests_1m" / "2026-01-02.parquet")
    assert table["num_requests"].to_pylist() == [2]


def test_an_export_has_what_was_only_in_the_log_and_a_retry_is_still_known(
    tmp_path: Path,
) -> None:
    """A collector that is killed, or stopped while the store is busy, leaves the rest there."""
    data, out = tmp_path / "data", tmp_path / "out"
    body = trace_request(
        3, {"evenkeel.status": "ok", "gen_ai.request.model": "m"}, start_ns=time.time_ns()
    ).SerializeToString()
    with running_unread_collector(data) as collector:
        url = f"{collector.http_url}/v1/traces"
        assert httpx.post(url, content=body, headers=PROTOBUF).status_code == 200
        collector.kill()
    assert list((data / "log").glob("*.open"))
    exported = run_store(
        "export", "parquet", str(out), "--table", "spans", "--data-dir", str(data), "--json"
    )
    assert (exported.returncode, json.loads(exported.stdout)) == (0, {"files": 1, "rows": 3})
    assert list((data / "log").glob("*.open")) + list((data / "log").glob("*.sealed")) == []
    with running_collector(data) as collector:
        url = f"{collector.http_url}/v1/traces"
        assert httpx.post(url, content=body, headers=PROTOBUF).status_code == 200
        send(collector, 1, "acme", 0)
        wait_for(lambda: collector.rows("SELECT count() FROM spans") != [(3,)])
        assert collector.rows("SELECT count() FROM spans") == [(4,)]


def test_a_damaged_backup_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    data, backup, again = tmp_path / "data", tmp_path / "backup.tar", tmp_path / "again"
    with running_collector(data) as collector:
        send(collector, 5, "acme", 0)
    assert run_store("backup", str(backup), "--data-dir", str(data)).returncode == 0
    whole = backup.read_bytes()
    name = whole.index(b"collector-id")
    (tmp_path / "changed.tar").write_bytes(whole[: name + 515] + b"?" + whole[name + 516 :])
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "other.tar").write_bytes(b"no tar at all")
    for file in ("changed.tar", "cut.tar", "other.tar", "missing.tar"):
        result = run_store("restore", str(tmp_path / file), "--data-dir", str(again))
        assert result.returncode == 2, file
        assert len(result.stderr.splitlines()) == 1
        assert not again.exists()
