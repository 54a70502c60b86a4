"""The query port: stock ClickHouse clients read through it, and can do nothing else."""

import contextlib
import gzip
import select
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import clickhouse_connect
import httpx
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from evenkeel.store import Store
from evenkeel_collector.query.names import CLIENT_SETTINGS
from tests.fixtures.collector_process import CollectorProcess, running_collector, wait_for
from tests.fixtures.doc_queries import find_queries
from tests.fixtures.otlp_payload import trace_request

NUM_SPANS = 500
READONLY = 164


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    with running_collector(tmp_path_factory.mktemp("collector")) as running:
        body = trace_request(NUM_SPANS, {"evenkeel.status": "ok"}, service="q").SerializeToString()
        httpx.post(
            f"{running.http_url}/v1/traces",
            content=body,
            headers={"content-type": "application/x-protobuf"},
        )
        wait_for(lambda: running.rows("SELECT count() FROM spans") == [(NUM_SPANS,)])
        yield running


@pytest.fixture(scope="module")
def client(collector: CollectorProcess) -> Iterator[Any]:
    made = collector.client()
    yield made
    made.close()


def post(collector: CollectorProcess, sql: str, **parameters: str) -> httpx.Response:
    return httpx.post(collector.query_url, params=parameters, content=sql, timeout=120)


def test_our_own_reader_connects(collector: CollectorProcess) -> None:
    Store(collector.query_url).close()


def test_a_stock_client_reads_rows_frames_and_raw_bytes(client: Any) -> None:
    assert client.query("SELECT count() FROM spans").first_row == (NUM_SPANS,)
    frame = client.query_df("SELECT ServiceName, SpanKind FROM evenkeel.spans LIMIT 3")
    assert list(frame["ServiceName"]) == ["q"] * 3
    assert client.raw_query("SELECT 1, 'a'", fmt="CSV") == b'1,"a"\n'
    assert client.query_np("SELECT toUInt8(1)").tolist() == [[1]]
    assert client.command("SELECT 1") == 1
    assert client.ping()


@pytest.mark.parametrize("query", [pytest.param(query, id=name) for name, query in find_queries()])
def test_queries_in_the_docs_are_answered(collector: CollectorProcess, query: str) -> None:
    moments = {"param_start": "2026-11-26 12:00:00", "param_end": "2026-11-26 13:00:00"}
    values = {"database": "evenkeel", "param_model": "m", "param_instance": "i", **moments}
    response = post(collector, query, **values)
    assert response.status_code == 200, response.text


def test_a_stock_client_streams(client: Any) -> None:
    with client.query_rows_stream("SELECT number FROM numbers(100000)") as rows:
        assert sum(row[0] for row in rows) == 99999 * 50000


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("String", "it's\ta \\ 'test'\n"),
        ("String", "'; DROP TABLE spans; --"),
        ("UInt64", 2**63),
        ("Array(String)", ["a'b", "c"]),
        ("Nullable(String)", None),
        ("Float64", 0.1),
    ],
)
def test_parameters_are_values_and_never_text(client: Any, declared: str, value: Any) -> None:
    result = client.query(f"SELECT {{v:{declared}}}", parameters={"v": value})
    assert result.first_row == (value,)


def test_long_queries_come_as_forms(collector: CollectorProcess) -> None:
    made = clickhouse_connect.get_client(dsn=collector.query_url, form_encode_query_params=True)
    text = "x" * 100_000
    assert made.query("SELECT {v:String}", parameters={"v": text}).first_row == (text,)
    made.close()


def test_a_setting_that_lifts_no_limit_may_be_given(client: Any) -> None:
    sql = "SELECT getSetting('max_threads'), getSetting('session_timezone')"
    settings = {"max_threads": 1, "session_timezone": "Asia/Tokyo"}
    assert client.query(sql, settings=settings).first_row == (1, "Asia/Tokyo")


def test_formats_follow_the_header_the_parameter_and_the_query(
    collector: CollectorProcess,
) -> None:
    assert post(collector, "SELECT 1 AS a FORMAT JSONEachRow").text == '{"a":1}\n'
    answer = post(collector, "SELECT 1 AS a", default_format="CSVWithNames")
    assert answer.text == '"a"\n1\n'
    assert answer.headers["x-clickhouse-format"] == "CSVWithNames"
    answer = httpx.post(
        collector.query_url, content="SELECT 2", headers={"X-ClickHouse-Format": "CSV"}
    )
    assert answer.text == "2\n"


def test_the_query_may_be_in_the_url_in_the_body_or_compressed(
    collector: CollectorProcess,
) -> None:
    assert httpx.get(collector.query_url, params={"query": "SELECT 1"}).text == "1\n"
    answer = httpx.post(
        collector.query_url,
        content=gzip.compress(b"SELECT 2"),
        headers={"content-encoding": "gzip"},
    )
    assert answer.text == "2\n"
    assert httpx.get(collector.query_url).text == "Ok.\n"
    assert httpx.get(f"{collector.query_url}/ping").text == "Ok.\n"


def test_large_answers_are_compressed_when_asked(collector: CollectorProcess) -> None:
    answer = post(collector, "SELECT number FROM numbers(100000)")
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.text.splitlines()) == 100_000
    plain = httpx.post(
        collector.query_url,
        content="SELECT number FROM numbers(100000)",
        headers={"accept-encoding": "identity"},
    )
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize(
    ("sql", "code", "status"),
    [
        ("SELEC 1", 62, 400),
        ("SELECT * FROM nothing", 60, 404),
        ("SELECT nothing FROM spans", 47, 404),
        ("SELECT * FROM nowhere.t", 81, 404),
        ("SELECT throwIf(1)", 395, 500),
    ],
)
def test_errors_are_those_of_clickhouse(
    collector: CollectorProcess, sql: str, code: int, status: int
) -> None:
    answer = post(collector, sql, database="evenkeel")
    assert answer.status_code == status
    assert answer.headers["x-clickhouse-exception-code"] == str(code)
    assert answer.text.startswith(f"Code: {code}. DB::Exception: ")


REFUSED = [
    "INSERT INTO spans (SpanName) VALUES ('x')",
    "INSERT INTO spans SELECT * FROM spans",
    "INSERT INTO FUNCTION file('/tmp/evenkeel-refused', 'CSV', 'a String') VALUES ('x')",
    "DROP TABLE spans",
    "TRUNCATE TABLE spans",
    "ALTER TABLE spans DELETE WHERE 1",
    "DELETE FROM spans WHERE 1",
    "UPDATE spans SET SpanName = 'x' WHERE 1",
    "OPTIMIZE TABLE spans FINAL",
    "RENAME TABLE spans TO gone",
    "CREATE TABLE t (a UInt8) ENGINE = Memory",
    "CREATE TEMPORARY TABLE t (a UInt8)",
    "CREATE FUNCTION f AS x -> x",
    "ATTACH DATABASE d ENGINE = Filesystem('/')",
    "BACKUP DATABASE evenkeel TO File('/tmp/evenkeel-refused')",
    "SYSTEM FLUSH LOGS",
    "SYSTEM STOP MERGES",
    "KILL QUERY WHERE 1",
    "SET readonly = 0",
    "USE system",
    "GRANT ALL ON *.* TO default",
    "SELECT 1; DROP TABLE spans",
    "SELECT 1;SELECT 2",
    "/* SELECT */ DROP TABLE spans",
    "-- SELECT\nDROP TABLE spans",
    "#!SELECT\nDROP TABLE spans",
    "EXPLAIN SELECT 1; DROP TABLE spans",
    "SELECT 1 INTO OUTFILE '/tmp/evenkeel-refused'",
    "SELECT 1 INTO/**/OUTFILE '/tmp/evenkeel-refused' TRUNCATE FORMAT CSV",
    "EXPLAIN AST SELECT 1 INTO OUTFILE '/tmp/evenkeel-refused'",
    "SELECT file('/etc/passwd')",
    "SELECT FILE('/etc/passwd')",
    "SELECT \"file\"('/etc/passwd')",
    "SELECT \"\\x66ile\"('/etc/passwd')",
    "SELECT `file`/**/('/etc/passwd')",
    "SELECT arrayMap(file, ['/etc/passwd'])",
    "SELECT * APPLY(file) FROM (SELECT '/etc/passwd')",
    "WITH file AS f SELECT arrayMap(f, ['/etc/passwd'])",
    "SELECT * FROM file('/etc/passwd', 'LineAsString')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM `/etc/passwd`",
    "SELECT * FROM {t:Identifier}",
    "SELECT arrayMap({f:Identifier}, ['/etc/passwd'])",
    "SELECT arrayMap({e:Identifier}, ['/etc/passwd'])",
    "DESCRIBE TABLE file('/etc/passwd', 'LineAsString')",
    "DESCRIBE TABLE url('http://127.0.0.1:1/', 'CSV')",
    "SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'a String')",
    "SELECT * FROM urlCluster('c', 'http://127.0.0.1:1/', 'CSV', 'a String')",
    "SELECT * FROM s3('http://127.0.0.1:1/bucket/key', 'CSV', 'a String')",
    "SELECT * FROM remote('127.0.0.1:1', system.one)",
    "SELECT * FROM cluster('default', system.one)",
    "SELECT * FROM mysql('127.0.0.1:1', 'd', 't', 'u', 'p')",
    "SELECT * FROM sqlite('/tmp/x.db', 't')",
    "SELECT * FROM executable('x.sh', 'TSV', 'a String')",
    "SELECT * FROM filesystem('/etc')",
    "SELECT * FROM eval('SELECT 1')",
    "SELECT * FROM Python(os)",
    "SELECT * FROM input('a UInt8')",
    "SELECT 1 IN (SELECT * FROM file('/etc/passwd', 'LineAsString'))",
    "SELECT (SELECT x FROM url('http://127.0.0.1:1/', 'CSV', 'x String'))",
    "SELECT 1 SETTINGS max_execution_time = 1000000",
    "SELECT 1 SETTINGS readonly = 0",
    "SELECT 1 SETTINGS max_memory_usage = 0",
    "SELECT * FROM (SELECT 1 SETTINGS max_result_rows = 0)",
    "SELECT 1 SETTINGS allow_python_table_function = 1",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_what_writes_or_leaves_the_store_is_refused(collector: CollectorProcess, sql: str) -> None:
    names = {"param_t": "/etc/passwd", "param_f": "file", "param_e": "fil\\x65"}
    answer = post(collector, sql, database="evenkeel", **names)
    assert answer.status_code >= 400
    assert "root:" not in answer.text
    assert int(answer.headers["x-clickhouse-exception-code"]) in (READONLY, 62, 60)
    assert not Path("/tmp/evenkeel-refused").exists()
    assert post(collector, "SELECT count() FROM evenkeel.spans").text == f"{NUM_SPANS}\n"


@pytest.mark.parametrize(
    "name",
    [
        "readonly", "max_rows_to_read", "allow_ddl", "max_memory_usage_for_user", "profile",
        "format_schema", "allow_python_table_function", "nonsense", "max_untracked_memory",
        "log_queries", "insert_deduplicate", "timeout_overflow_mode",
    ],
)  # fmt: skip
def test_a_setting_that_could_lift_a_limit_is_refused(
    collector: CollectorProcess, name: str
) -> None:
    answer = post(collector, "SELECT 1", **{name: "0"})
    assert answer.headers["x-clickhouse-exception-code"] == str(READONLY)


def test_the_engine_takes_each_flag_that_may_be_given(collector: CollectorProcess) -> None:
    flags = {name: p for name, p in CLIENT_SETTINGS.items() if p.match("1") and not p.match("2")}
    assert "extremes" in flags
    for name, pattern in flags.items():
        value = "true" if pattern.fullmatch("true") else "1"
        assert post(collector, "SELECT 1 FORMAT Null", **{name: value}).status_code == 200, name
    refused = post(collector, "SELECT 1", select_sequential_consistency="true")
    assert "'true' is not allowed here" in refused.text


@pytest.mark.parametrize("value", ["1000000", "0", "-1", "nan", "inf", "1e9"])
def test_a_limit_may_be_lowered_and_not_raised(collector: CollectorProcess, value: str) -> None:
    sql = "SELECT getSetting('max_execution_time'), getSetting('max_result_rows')"
    answer = post(collector, sql, max_execution_time=value, max_result_rows=value)
    assert answer.text == "30\t1000000\n"
    lowered = post(collector, sql, max_execution_time="2", max_result_rows="7")
    assert lowered.text == "2\t7\n"


def test_a_setting_that_hides_sql_stays_a_value(collector: CollectorProcess) -> None:
    answer = post(collector, "SELECT 1", session_timezone="UTC', readonly = '0")
    assert answer.status_code >= 400
    assert post(collector, "DROP TABLE evenkeel.spans").status_code >= 400


def test_a_database_that_hides_sql_stays_a_name(collector: CollectorProcess) -> None:
    answer = post(collector, "SELECT 1", database="system`; DROP TABLE evenkeel.spans; --")
    assert answer.headers["x-clickhouse-exception-code"] == "81"
    assert post(collector, "SELECT count() FROM evenkeel.spans").text == f"{NUM_SPANS}\n"


@pytest.mark.parametrize(
    ("sql", "limits", "code"),
    [
        (
            "SELECT sum(cityHash64(number)) FROM numbers(1000000000000)",
            {"max_execution_time": "1.5"},
            159,
        ),
        ("SELECT number FROM numbers(2000000)", {}, 396),
        (
            "SELECT groupArray(number) FROM numbers(100000000)",
            {"max_memory_usage": "100000000"},
            241,
        ),
    ],
)
def test_a_query_is_bounded_in_time_rows_and_memory(
    collector: CollectorProcess, sql: str, limits: dict[str, str], code: int
) -> None:
    # Without its bound the first would take hours.
    answer = post(collector, sql, **limits)
    assert answer.headers["x-clickhouse-exception-code"] == str(code)


def test_spans_are_taken_in_while_every_query_thread_is_busy(
    collector: CollectorProcess,
) -> None:
    slow = "SELECT sum(cityHash64(number)) FROM numbers(1000000000000)"
    length = f"content-length: {len(slow)}"
    asked = f"POST /?max_execution_time=600 HTTP/1.1\r\nhost: 127.0.0.1\r\n{length}\r\n\r\n{slow}"
    address = urlsplit(collector.query_url)
    with contextlib.ExitStack() as stack:
        asking = []
        for _ in range(6):
            sock = socket.create_connection((address.hostname, address.port))
            asking.append(stack.enter_context(sock))
            sock.sendall(asked.encode())
        time.sleep(0.3)
        body = trace_request(1, service="while-busy").SerializeToString()
        answer = httpx.post(
            f"{collector.http_url}/v1/traces",
            content=body,
            headers={"content-type": "application/x-protobuf"},
            timeout=300,
        )
        poller = select.poll()
        for sock in asking:
            poller.register(sock, select.POLLIN)
        answered = poller.poll(0)
    # The queries end with their connections.
    assert answer.status_code == 200
    assert answered == []


def test_a_client_that_connects_is_told_which_settings_it_may_give(client: Any) -> None:
    rows = client.query("SELECT name, value, readonly FROM system.settings LIMIT 10000").result_rows
    readonly = {name: flag for name, _, flag in rows}
    assert len(readonly) > 500
    assert readonly["session_timezone"] == readonly["max_execution_time"] == 0
    assert readonly["readonly"] == readonly["max_rows_to_read"] == 1


def test_a_stock_client_gets_the_error_as_an_exception(client: Any) -> None:
    with pytest.raises(DatabaseError, match="only reads") as raised:
        client.command("DROP TABLE spans")
    assert raised.value.code == READONLY


def test_a_query_ends_when_its_client_leaves(collector: CollectorProcess) -> None:
    def cancelled() -> float:
        text = httpx.get(f"{collector.http_url}/metrics").text
        name = "evenkeel_collector_queries_cancelled_total"
        return float(next(line.split()[1] for line in text.splitlines() if line.startswith(name)))

    before = cancelled()
    slow = "SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) % 7 = 3"
    # More than there are threads: those that wait are cancelled before they start.
    with ThreadPoolExecutor(8) as pool:
        for future in [
            pool.submit(httpx.post, collector.query_url, content=slow, timeout=8) for _ in range(8)
        ]:
            with pytest.raises(httpx.TimeoutException):
                future.result()
    wait_for(lambda: cancelled() == before + 8)
    left = (
        "SELECT count() FROM system.processes"
        " WHERE query LIKE '%1000000000000%' AND query NOT LIKE '%system.processes%'"
    )
    wait_for(lambda: collector.rows(left) == [(0,)])


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8123", "localhost.evil.example"])
@pytest.mark.parametrize("path", ["/", "/ping", "/?query=SELECT+1"])
def test_a_page_of_a_stranger_gets_nothing(
    collector: CollectorProcess, host: str, path: str
) -> None:
    """Its name may be made to resolve to this machine; the browser still sends it as Host."""
    answer = httpx.get(collector.query_url + path, headers={"host": host})
    assert (answer.status_code, answer.text.count("\n")) == (421, 1)
    api = httpx.get(f"{collector.http_url}/api/alerts", headers={"host": host})
    assert api.status_code == 421


def test_other_names_are_answered_where_they_belong(tmp_path: Path) -> None:
    with running_collector(tmp_path, ["--allowed-hosts", "collector,store.example"]) as running:
        for host in ("collector:8123", "STORE.example", "localhost"):
            answer = httpx.get(f"{running.query_url}/?query=SELECT+1", headers={"host": host})
            assert answer.text == "1\n"
        # Senders and scrapers are no browsers: they may use any name.
        answer = httpx.get(f"{running.http_url}/metrics", headers={"host": "other"})
        assert answer.status_code == 200
