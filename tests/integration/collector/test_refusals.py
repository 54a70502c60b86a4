"""What the collector does with what cannot be stored: poison, and disks that are full."""

import resource
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil

from evenkeel_collector.log.segment_format import encode_segment
from tests.fixtures.collector_process import (
    CollectorProcess,
    copy_new_store,
    running_collector,
    wait_for,
)
from tests.fixtures.otlp_payload import trace_request

PROTOBUF = {"content-type": "application/x-protobuf"}
REQUEST = {"evenkeel.status": "ok", "gen_ai.request.model": "m"}


def write_segment(data_dir: Path, bodies: list[bytes]) -> str:
    now_ns = time.time_ns()
    name = f"{now_ns:020d}-test"
    (data_dir / "log").mkdir(parents=True)
    (data_dir / "log" / f"{name}.sealed").write_bytes(encode_segment(name, now_ns, bodies))
    return name


def run_statements(data_dir: Path, statements: list[str]) -> None:
    """Run statements in the store of a collector that does not run."""
    program = (
        "import clickhouse_connect, sys\n"
        "client = clickhouse_connect.get_client("
        "interface='chdb', path=sys.argv[1], database='evenkeel')\n"
        "for statement in sys.argv[2:]: client.command(statement)\n"
    )
    store = str(data_dir / "store")
    subprocess.run([sys.executable, "-c", program, store, *statements], check=True)


def counts(collector: CollectorProcess) -> tuple[list[tuple[int, ...]], ...]:
    return tuple(
        collector.rows(sql)
        for sql in (
            "SELECT count() FROM spans",
            "SELECT count() FROM requests",
            "SELECT sum(num_requests) FROM requests_1m",
        )
    )


def test_poison_is_set_aside_with_a_reason_and_the_rest_is_stored_once(tmp_path: Path) -> None:
    garbage = b"\x0a\x02\xff\xff"
    good = trace_request(3, REQUEST).SerializeToString()
    name = write_segment(tmp_path, [good, good, garbage, good])
    with running_collector(tmp_path) as collector:
        wait_for(lambda: not any((tmp_path / "log").glob("*.sealed")))
        assert counts(collector) == ([(9,)], [(9,)], [(9,)])
        metrics = httpx.get(f"{collector.http_url}/metrics").text
        assert "evenkeel_collector_segments_quarantined_total 1.0" in metrics
        databases = collector.rows("SELECT name FROM system.databases WHERE name LIKE 'evenkeel%'")
        assert sorted(databases) == [("evenkeel",), ("evenkeel_tenant",)]
    quarantine = tmp_path / "log" / "quarantine"
    reason, piece = sorted(quarantine.iterdir())
    assert reason.name == f"{piece.stem}.reason"
    assert piece.name.startswith(f"{name}.")
    assert "Protobuf" in reason.read_text()

    # Mended, it is stored under a name of its own.
    mended = trace_request(2, REQUEST).SerializeToString()
    piece.write_bytes(encode_segment(piece.stem, time.time_ns(), [mended]))
    with running_collector(tmp_path, ["--replay-quarantine"]) as collector:
        wait_for(lambda: counts(collector) == ([(11,)], [(11,)], [(11,)]))
        assert list(quarantine.iterdir()) == []


def test_what_a_view_refuses_after_spans_were_written_is_not_doubled(tmp_path: Path) -> None:
    copy_new_store(tmp_path / "store")
    # A view of the operator's own, behind the one that fills spans.
    statements = [
        "CREATE TABLE lengths (length UInt64) ENGINE = MergeTree ORDER BY length",
        "CREATE MATERIALIZED VIEW spans_to_lengths TO lengths AS SELECT"
        " length(SpanName) + throwIf(SpanName = 'poison', 'too odd') AS length FROM spans",
    ]
    run_statements(tmp_path, statements)
    poison = trace_request(1, REQUEST, name="poison").SerializeToString()
    good = trace_request(3, REQUEST).SerializeToString()
    name = write_segment(tmp_path, [good, poison, good])
    with running_collector(tmp_path) as collector:
        wait_for(lambda: not any((tmp_path / "log").glob("*.sealed")))
        names = dict(collector.rows("SELECT SpanName, count() FROM spans GROUP BY 1"))
        assert names["test"] == 6
        assert collector.rows("SELECT count() FROM lengths") == [(6,)]
        assert collector.rows(
            "SELECT count() FROM requests WHERE span_id NOT IN "
            "(SELECT SpanId FROM spans WHERE SpanName = 'poison')"
        ) == [(6,)]
    (reason,) = (tmp_path / "log" / "quarantine").glob(f"{name}.*.reason")
    assert "too odd" in reason.read_text()


def test_a_full_disk_refuses_senders_and_loses_nothing_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    body_bytes = len(trace_request(40, REQUEST).SerializeToString())
    acknowledged = 0
    answers = []
    config = tmp_path / "evenkeel.toml"
    config.write_text(f"[collector]\nmin_free_bytes = {1 << 60}\n")
    with running_collector(tmp_path) as collector:
        url = f"{collector.http_url}/v1/traces"
        process = psutil.Process(collector.process.pid)
        _, hard = process.rlimit(resource.RLIMIT_FSIZE)

        def send(times: int) -> None:
            nonlocal acknowledged
            for _ in range(times):
                body = trace_request(40, REQUEST).SerializeToString()
                answer = httpx.post(url, content=body, headers=PROTOBUF, timeout=120)
                answers.append(answer.status_code)
                acknowledged += answer.status_code == 200
                if answer.status_code == 503:
                    assert int(answer.headers["retry-after"]) >= 1

        send(5)
        # No file of the log may grow beyond this: the kernel cuts writes in the middle.
        process.rlimit(resource.RLIMIT_FSIZE, (body_bytes * 3 + 100, hard))
        send(20)
        process.rlimit(resource.RLIMIT_FSIZE, (100, hard))
        send(5)
        assert answers[-5:] == [503] * 5
        refusing = httpx.get(f"{collector.http_url}/readyz")
        assert refusing.status_code == 503 and "cannot write to the log" in refusing.text
        process.rlimit(resource.RLIMIT_FSIZE, (hard, hard))
        send(5)
        assert answers[-5:] == [200] * 5
        assert httpx.get(f"{collector.http_url}/readyz").status_code == 200
        # The store's disk counts as full all the while: it has nothing, the log has all.
        assert counts(collector)[0] == [(0,)]
        assert "min_free_bytes" in collector.stderr()
    config.write_text("")
    total = acknowledged * 40
    with running_collector(tmp_path) as collector:
        wait_for(lambda: counts(collector) == ([(total,)],) * 3)
    assert not any((tmp_path / "log").glob("quarantine/*"))


def test_a_store_opens_whose_database_for_tenants_met_a_full_disk(tmp_path: Path) -> None:
    copy_new_store(tmp_path / "store")
    described = tmp_path / "store" / "metadata" / "evenkeel_tenant.sql"
    assert described.stat().st_size > 0
    described.write_text("")
    with running_collector(tmp_path) as collector:
        assert collector.rows("SELECT count() FROM spans") == [(0,)]
