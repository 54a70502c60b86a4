"""A token with a tenant sees that tenant's rows, however the query is written."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.model import Slo
from evenkeel.store import Store
from evenkeel.times import to_datetime
from evenkeel_collector.store.rollups import Rollups
from tests.fixtures.collector_process import CollectorProcess, running_collector
from tests.fixtures.new_store import open_new_store
from tests.integration.dashboard.test_store_queries import QUERIES
from tests.queries import query

NOW = 1_795_168_800 * 10**9
# A name that must be quoted wherever it is written.
ACME = "ac\\me's"
OTHER = "globex"
TENANTS = (ACME, OTHER)
READONLY, UNKNOWN = 164, 60


def token(name: str, *scopes: str, tenant: str = "") -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()
    listed = ", ".join(f'"{scope}"' for scope in scopes)
    text = f'[[token]]\nname = "{name}"\nsha256 = "{digest}"\nscopes = [{listed}]\n'
    return text + (f"tenant = '''{tenant}'''\n" if tenant else "")


def fill(folder: Path) -> None:
    """Write two rows of each tenant, and one of nobody, into every table."""
    storage = open_new_store(folder)
    client = storage.connect()

    def insert(table: str, columns: str, *rows: list[Any]) -> None:
        client.insert(table, list(rows), column_names=columns.split())

    time = to_datetime(NOW)
    named = [(tenant, i) for tenant in TENANTS for i in range(2)]
    insert(
        "requests", "time trace_id model tenant status ttft_s sample_weight",
        *([time, f"{name}{i}", "m", name, "ok", 0.1 + i, 1.0] for name, i in named),
        [time, "nobody", "m", None, "ok", 0.1, 1.0],
    )  # fmt: skip
    attribute = "evenkeel.tenant"
    insert(
        "spans", "Timestamp TraceId SpanName SpanAttributes ResourceAttributes",
        *([time, f"{name}{i}", name, {attribute: name} if i else {}, {} if i else {attribute: name}]
          for name, i in named),
        [time, "nobody", "nobody", {}, {}],
    )  # fmt: skip
    insert(
        "logs", "Timestamp TraceId Body LogAttributes ResourceAttributes",
        *([time, f"{name}{i}", name, {attribute: name} if i else {}, {} if i else {attribute: name}]
          for name, i in named),
        [time, "nobody", "nobody", {}, {}],
    )  # fmt: skip
    insert(
        "engine_state", "time name resource_attributes value",
        *([time, name, {attribute: name}, float(i)] for name, i in named),
        [time, "nobody", {}, 0.0],
    )  # fmt: skip
    insert(
        "eval_results", "time run_id attributes",
        *([time, f"{name}{i}", {attribute: name}] for name, i in named),
    )  # fmt: skip
    insert(
        "slo_status", "time slo target selector",
        *([time, f"{name}{i}", 0.9, {"tenant": name}] for name, i in named),
        [time, "everybody's", 0.9, {}],
    )  # fmt: skip
    insert(
        "alert_history", "time transition_id slo labels",
        *([time, f"{name}{i}", name, {"tenant": name}] for name, i in named),
    )  # fmt: skip
    path = folder.parent / "slos.yaml"
    Rollups(storage.connect, storage.gate).use(read_slos(path))
    client.close()
    storage.close()


def read_slos(path: Path) -> tuple[Slo, ...]:
    one = """\
apiVersion: openslo/v1
kind: SLO
metadata: {{name: {name}}}
spec:
  service: s
  indicator: {{metric: ttft, select: {{{select}}}}}
  objectives: [{{target: 0.9, op: lte, value: 0.5}}]
  timeWindow: [{{duration: 30d, isRolling: true}}]
"""
    path.write_text(
        "---\n".join(
            [
                one.format(name="everybody", select="model: m"),
                one.format(name="theirs", select=f"tenant: {OTHER}"),
                one.format(name="some", select=f"tenant: [{OTHER}, others]"),
            ]
        )
    )
    return read_slo_file(path).slos


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    folder = tmp_path_factory.mktemp("collector")
    fill(folder / "store")
    access = folder / "access.toml"
    access.write_text(token("acme", "query", "ingest", tenant=ACME) + token("all", "query"))
    with running_collector(folder, ["--access", str(access)]) as running:
        yield running


def ask(collector: CollectorProcess, sql: str, token: str = "acme", **more: str) -> httpx.Response:
    parameters = {"database": "evenkeel", **more}
    headers = {"authorization": f"Bearer {token}"}
    return httpx.post(collector.query_url, params=parameters, content=sql, headers=headers)


def rows(collector: CollectorProcess, sql: str, token: str = "acme", **more: str) -> list[Any]:
    answer = ask(collector, sql + " FORMAT JSONCompact", token, **more)
    assert answer.status_code == 200, answer.text
    return [tuple(row) for row in answer.json()["data"]]


BY_TABLE = [
    ("requests", "tenant", 2),
    ("spans", "SpanAttributes['evenkeel.tenant'] || ResourceAttributes['evenkeel.tenant']", 2),
    ("logs", "LogAttributes['evenkeel.tenant'] || ResourceAttributes['evenkeel.tenant']", 2),
    # Merged or not.
    ("requests_1m", "tenant", None),
    ("requests_1h", "tenant", None),
    ("engine_state", "resource_attributes['evenkeel.tenant']", 2),
    ("eval_results", "attributes['evenkeel.tenant']", 2),
    ("slo_status", "selector['tenant']", 2),
    ("alert_history", "labels['tenant']", 2),
]


@pytest.mark.parametrize(("table", "tenant", "num"), BY_TABLE, ids=[case[0] for case in BY_TABLE])
def test_every_table_shows_a_tenant_its_rows(
    collector: CollectorProcess, table: str, tenant: str, num: int | None
) -> None:
    sql = f"SELECT DISTINCT {tenant} FROM {table}"
    assert rows(collector, sql) == [(ACME,)]
    assert {(ACME,), (OTHER,)} <= set(rows(collector, sql, "all"))
    if num is not None:
        assert rows(collector, f"SELECT toUInt8(count()) FROM {table}") == [(num,)]


def test_no_table_shows_a_tenant_what_is_not_told_apart(collector: CollectorProcess) -> None:
    """A table that somebody adds is empty for tenants until tenant_row_filters.py knows it."""
    tables = rows(
        collector,
        "SELECT name, engine FROM system.tables WHERE database = 'evenkeel'"
        " AND engine NOT IN ('View', 'Null')",
        "all",
    )
    known = {table for table, _, _ in BY_TABLE} | {"slo_objectives", "prices"}
    for name, _ in tables:
        if name not in known:
            assert rows(collector, f"SELECT * FROM {name}") == [], name
    assert len(tables) > len(known)


def test_events_of_objectives_are_of_the_tenants_requests(collector: CollectorProcess) -> None:
    sql = "SELECT slo, toUInt8(sum(good)), toUInt8(sum(bad)) FROM slo_counts_1m GROUP BY slo"
    assert rows(collector, sql) == [("everybody", 1, 1)]
    assert sorted(rows(collector, sql, "all")) == [
        ("everybody", 3, 2), ("some", 1, 1), ("theirs", 1, 1),
    ]  # fmt: skip
    assert rows(collector, "SELECT slo FROM slo_objectives WHERE slo != ''") == [("everybody",)]


# Each would count every tenant's requests, if it got round the filter.
WAYS_OF_COUNTING = [
    "SELECT count() FROM evenkeel.requests",
    "SELECT count() FROM `evenkeel`.`requests` AS r",
    "SELECT count() FROM requests WHERE 1 OR tenant = 'globex'",
    "SELECT count() FROM (SELECT * FROM (SELECT * FROM requests))",
    "WITH r AS (SELECT * FROM requests) SELECT count() FROM r",
    "WITH 'globex' AS tenant SELECT count() FROM requests",
    "SELECT count(), 'globex' AS tenant FROM requests",
    "SELECT (SELECT count() FROM requests)",
    "SELECT count() FROM view(SELECT * FROM requests)",
    "SELECT countDistinct(b.trace_id) FROM numbers(1) AS n LEFT JOIN requests AS b ON 1",
    "SELECT countDistinct(b.trace_id) FROM requests AS a RIGHT JOIN requests AS b ON a.ttft_s > 99",
    "SELECT countDistinct(b.trace_id) FROM requests AS a, requests AS b",
    "SELECT count() FROM (SELECT * FROM requests WHERE 0 UNION ALL SELECT * FROM requests)",
    "SELECT count() FROM (SELECT * FROM requests EXCEPT SELECT * FROM requests WHERE ttft_s > 9)",
    "SELECT count() FROM requests AS r WHERE EXISTS (SELECT 1 FROM requests WHERE tenant != '')",
    "SELECT sum(n) FROM (SELECT count() AS n FROM requests GROUP BY tenant)",
    "SELECT count() OVER () FROM requests LIMIT 1",
    "SELECT count() FROM requests ARRAY JOIN [1] AS x",
    "SELECT countIf(x IN (SELECT trace_id FROM requests)) FROM"
    " (SELECT arrayJoin(['globex0', 'globex1', 'nobody', 'ac\\\\me\\'s0', 'ac\\\\me\\'s1']) AS x)",
    "SELECT count() FROM {table:Identifier}",
    "WITH RECURSIVE r AS (SELECT trace_id, 1 AS n FROM requests UNION ALL"
    " SELECT trace_id, n + 1 FROM r WHERE n < 1) SELECT count() FROM r",
    "SELECT uniqMerge(s) FROM (SELECT uniqState(trace_id) AS s FROM requests)",
    "SELECT count() FROM requests INNER JOIN spans ON requests.trace_id = spans.TraceId",
    "SELECT toUInt64(sum(num_requests)) FROM requests_1h",
    "SELECT toUInt64(sum(num_ok)) FROM requests_to_requests_1m",
]


@pytest.mark.parametrize("sql", WAYS_OF_COUNTING)
def test_no_way_of_asking_shows_more(collector: CollectorProcess, sql: str) -> None:
    found = rows(collector, sql, param_table="requests")[0][0]
    # A view that fills a table shows nothing at all.
    assert int(found) == (0 if "requests_to_" in sql else 2)


REFUSED = [
    "SELECT count() FROM merge('evenkeel', 'requests')",
    "SELECT count() FROM `merge`('requests')",
    "SELECT count() FROM requests SETTINGS additional_table_filters = {}",
    "SELECT count() FROM (SELECT * FROM requests SETTINGS additional_table_filters = {})",
    "SET additional_table_filters = {}",
    "EXPLAIN ESTIMATE SELECT * FROM requests",
    "SELECT * FROM (EXPLAIN ESTIMATE SELECT * FROM requests)",
    "SELECT count() FROM requests PREWHERE throwIf(tenant = 'globex') = 0",
    "SELECT count() FROM {table:Identifier}",
    "SHOW CREATE TABLE requests",
    "SHOW TABLES",
    "SELECT * FROM mergeTreeIndex('evenkeel', 'requests')",
    "SELECT * FROM loop(requests)",
    "SELECT * FROM remote('127.0.0.1', evenkeel.requests)",
    "INSERT INTO requests SELECT * FROM requests",
    "KILL QUERY WHERE 1",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_what_tells_of_other_rows_is_refused(collector: CollectorProcess, sql: str) -> None:
    answer = ask(collector, sql, param_table="merge")
    assert answer.headers["x-clickhouse-exception-code"] == str(READONLY), answer.text
    assert OTHER not in answer.text.replace(sql, "")


@pytest.mark.parametrize(
    "name",
    [
        "additional_table_filters", "additional_result_filter", "optimize_move_to_prewhere",
        "readonly", "enable_analyzer", "log_comment", "query_plan_merge_filters", "use_primary_key",
        "enable_join_runtime_filters", "query_plan_optimize_lazy_materialization",
    ],
)  # fmt: skip
def test_the_settings_that_hold_a_tenant_cannot_be_given(
    collector: CollectorProcess, name: str
) -> None:
    answer = ask(collector, "SELECT count() FROM requests", **{name: "0"})
    assert answer.headers["x-clickhouse-exception-code"] == str(READONLY)


ORACLES = [
    "SELECT count() FROM requests WHERE throwIf(tenant = 'globex') = 0",
    "SELECT count() FROM requests WHERE intDiv(1, trace_id != 'globex1') = 1",
    "SELECT count() FROM requests AS r WHERE intDiv(1, r.trace_id NOT LIKE 'glob%') = 1"
    " AND r.model = 'm' AND r.time > '2000-01-01'",
    "SELECT count() FROM (SELECT * FROM requests) WHERE throwIf(trace_id = 'globex0') = 0",
    "SELECT count() FROM requests AS a JOIN requests AS b ON a.trace_id = b.trace_id"
    " WHERE throwIf(b.tenant = 'globex') = 0",
    "SELECT sum(throwIf(tenant = 'globex')) + 2 FROM requests",
    "SELECT sum(good + bad) FROM slo_counts_1m WHERE throwIf(tenant = 'globex') = 0 OR 1",
    "SELECT max(throwIf(TraceId LIKE 'glob%')) + 2 FROM spans WHERE SpanName != ''",
]


@pytest.mark.parametrize("sql", ORACLES)
def test_errors_do_not_tell_of_other_rows(collector: CollectorProcess, sql: str) -> None:
    """What fails on another tenant's row would fail here if it saw one before the filter."""
    answer = ask(collector, sql)
    assert (answer.status_code, answer.text) == (200, "2\n")


def test_every_table_is_there_for_a_tenant_and_none_has_a_dictionary(
    collector: CollectorProcess,
) -> None:
    """Functions run over a dictionary, whose values are of everybody's rows."""
    # Views with parameters have no columns before they get them.
    sql = "SELECT DISTINCT table FROM system.columns WHERE database = 'evenkeel'"
    names = [name for (name,) in rows(collector, sql, "all")]
    assert len(names) > 30
    for name in names:
        columns = rows(collector, f"DESCRIBE TABLE evenkeel.{name}")
        everybodys = rows(collector, f"DESCRIBE TABLE evenkeel.{name}", "all")
        assert [column[0] for column in columns] == [column[0] for column in everybodys], name
        assert not any("LowCardinality" in column[1] for column in columns), name


WAYS_TO_A_COLUMN = [
    "SELECT toTypeName(model) FROM requests",
    "SELECT toTypeName(model) FROM evenkeel.requests",
    "SELECT toTypeName(evenkeel.requests.model) FROM `evenkeel`.`requests`",
    "SELECT toTypeName(model) FROM evenkeel.requests AS evenkeel",
    "SELECT toTypeName(evenkeel.model) FROM (SELECT model FROM evenkeel.requests) AS evenkeel",
    "SELECT toTypeName(model) FROM {database:Identifier}.requests",
    "SELECT toTypeName(model) FROM {database:Identifier}.{table:Identifier}",
    "SELECT toTypeName(model) FROM evenkeel.{table:Identifier} WHERE {evenkeel:String} = 'x'",
    "SELECT toTypeName(model) FROM view(SELECT * FROM evenkeel.requests)",
    "WITH evenkeel AS (SELECT * FROM evenkeel.requests) SELECT toTypeName(model) FROM evenkeel",
    "SELECT (SELECT any(toTypeName(model)) FROM evenkeel.requests)",
    "SELECT toTypeName(model) FROM evenkeel.requests_1m FINAL",
    "SELECT toTypeName(model) FROM evenkeel.slo_counts_1m",
    "SELECT toTypeName(model) FROM evenkeel.requests_rolled(from_ms = 0, to_ms = 9000000000000,"
    " step_s = 60)",
    "SELECT toTypeName(model) FROM latency_values(measure = 'ttft', definition = 'ours',"
    " dimension = '', one_in = 1, from_ms = 0, to_ms = 9000000000000, model = '', tenant = '',"
    " prompt = '', slo_class = '')",
]


@pytest.mark.parametrize("sql", WAYS_TO_A_COLUMN)
@pytest.mark.parametrize("database", ["evenkeel", "default"])
def test_no_way_of_naming_a_column_leads_to_its_dictionary(
    collector: CollectorProcess, sql: str, database: str
) -> None:
    if database == "default" and ("FROM requests" in sql or "latency_values" in sql):
        sql = sql.replace("FROM requests", "FROM evenkeel.requests")
        sql = sql.replace("latency_values", "evenkeel.latency_values")
    parameters = {"database": "evenkeel", "table": "requests", "evenkeel": "x"}
    given = {f"param_{name}": value for name, value in parameters.items()}
    assert set(rows(collector, sql, **given, database=database)) == {("String",)}


ERRORS = [
    ("SELECT toUInt8(trace_id) FROM requests", "toUInt8 failed on a value. (CANNOT_PARSE_TEXT)"),
    ("SELECT max(base64Decode(trace_id)) FROM requests", "base64Decode failed on a value."),
    ("SELECT (SELECT max(toDate(trace_id)) FROM requests)", "toDate failed on a value."),
    ("SELECT nothing FROM evenkeel.requests", "identifier `nothing`. In scope SELECT nothing FROM"
     " evenkeel.requests"),
    ("SELECT * FROM evenkeel.nothing", "identifier 'evenkeel.nothing'"),
    ("SELECT toDate('x')", "Cannot parse date: expected a date in the YYYY-MM-DD"),
    ("SELECT toDate(x) FROM (SELECT 'in the query' AS x FROM numbers(1))", "here: in the que"),
    ("SELECT length(1) FROM requests", "Illegal type UInt8"),
    ("SELECT FROM WHERE", "Syntax error"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "told"), ERRORS)
def test_errors_tell_of_the_query_and_not_of_a_value(
    collector: CollectorProcess, sql: str, told: str
) -> None:
    answer = ask(collector, sql)
    assert answer.status_code >= 400
    assert told in answer.text, answer.text
    assert "me's0" not in answer.text


def test_a_tenants_query_uses_the_indexes(collector: CollectorProcess) -> None:
    sql = "SELECT count() FROM evenkeel_tenant.requests WHERE time > now() AND model = 'm'"
    plan = ask(collector, f"EXPLAIN indexes = 1 {sql}", "all").text
    assert "(time in [" in plan
    assert "PrimaryKey" in plan
    assert "(CAST(model, " in plan


def test_what_the_engine_says_of_itself_is_hidden(collector: CollectorProcess) -> None:
    for table in (
        "parts",
        "tables",
        "columns",
        "processes",
        "databases",
        "merges",
        "parts_columns",
    ):
        assert rows(collector, f"SELECT * FROM system.{table}") == [], table
        assert rows(collector, f"SELECT * FROM {table}", database="system") == [], table
    for table in ("tables", "columns"):
        assert rows(collector, f"SELECT * FROM information_schema.{table}") == [], table
    assert rows(collector, "SELECT name FROM system.settings WHERE name = 'max_threads'")


def test_the_answer_does_not_say_how_much_was_read(collector: CollectorProcess) -> None:
    answer = ask(collector, "SELECT count() FROM requests")
    assert '"read_rows": "0"' in answer.headers["x-clickhouse-summary"]


def test_our_own_reader_takes_a_tenants_token(collector: CollectorProcess) -> None:
    url = collector.query_url.replace("http://", "http://any:acme@")
    store = Store(url)
    everything = {"from_ms": NOW // 10**6 - 60_000, "to_ms": NOW // 10**6 + 60_000}
    assert store.rows(query("range_contents"), everything)[0]["num_requests"] == 2
    assert store.rows(query("range_contents_1m"), everything)[0]["num_requests"] == 2
    store.close()


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_of_the_dashboard_runs_for_a_tenant(
    collector: CollectorProcess, name: str
) -> None:
    store = Store(collector.query_url.replace("http://", "http://any:acme@"))
    everything = {"from_ms": NOW // 10**6 - 60_000, "to_ms": NOW // 10**6 + 60_000}
    store.rows(query(name), {**everything, **QUERIES[name]})
    store.close()
