"""Hostile queries: they may neither write, nor leave the store, nor tell of other tenants' rows."""

import itertools
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from evenkeel_collector.query.names import CLIENT_SETTINGS, FORMATS, LIMITED, TENANT_FORMATS
from evenkeel_collector.query.port import TRANSPORT_PARAMETERS
from tests.fixtures.collector_process import CollectorProcess, running_collector, wait_for
from tests.fixtures.otlp_payload import trace_request
from tests.hostile.query_fragments import hostile_queries, parse_all
from tests.hostile.tenant_answers import (
    Question,
    answers,
    questions_of,
    questions_with,
    quotes_own_value,
    shows_others,
    telling_questions,
)
from tests.hostile.tenant_shapes import SHAPES

READONLY, BAD_ARGUMENTS = 164, 36
# What the name of a setting may not hint at, if a client is to give it.
HARMFUL = re.compile(
    r"path|file|director|folder|schema(?!_inference)|registr|ur[il]|script|user|disk|storage|proxy|"
    r"cache|host|port(?!ed)|endpoint|secret|password|key|token|log|profile|cluster|remote|readonly|"
    r"allow_(?!simdjson)|s3|hdfs|azure|http|kafka|zookeeper|template|python|filter|temporary"
)
CANARY = "not to be overwritten"
SETTINGS_PLACES = [
    "SELECT 1 SETTINGS {}",
    "SELECT 1 FORMAT JSON SETTINGS {}",
    "SELECT 1 SETTINGS {} FORMAT JSON",
    "(SELECT 1 SETTINGS {}) UNION ALL SELECT 2",
    "SELECT * FROM (SELECT 1 SETTINGS {})",
    "SELECT (SELECT 1 SETTINGS {})",
    "SELECT 1 IN (SELECT 1 SETTINGS {})",
    "WITH x AS (SELECT 1 SETTINGS {}) SELECT * FROM x",
    "WITH (SELECT 1 SETTINGS {}) AS x SELECT x",
    "SELECT * FROM view(SELECT 1 SETTINGS {})",
    "SELECT * FROM numbers(1, SETTINGS {})",
    "SELECT 1 LIMIT (SELECT 1 SETTINGS {})",
    "SELECT count() OVER (ORDER BY (SELECT 1 SETTINGS {}))",
    "SELECT 1 AS a ORDER BY (SELECT 1 SETTINGS {})",
    "SELECT * FROM system.one JOIN (SELECT 0 AS dummy SETTINGS {}) AS j USING dummy",
    "EXPLAIN SELECT 1 SETTINGS {}",
    "EXPLAIN SELECT * FROM (SELECT 1 SETTINGS {})",
    "DESCRIBE TABLE (SELECT 1 SETTINGS {})",
    "DESCRIBE TABLE system.one SETTINGS {}",
    "SHOW TABLES SETTINGS {}",
    "EXISTS TABLE system.one SETTINGS {}",
    "SELECT 1 UNION ALL (SELECT 2 UNION DISTINCT (SELECT 3 SETTINGS {}))",
    "SELECT /* ' */ * FROM (SELECT 1 /* `\n */ SETTINGS/**/{})",
    "SELECT * FROM (SELECT 1 settings -- '\n {})",
]
SETTINGS_LISTS = [
    "{name} = {value}", "a.b = 1, {name} = {value}", "`a b` = 1, {name} = {value}", "{name}",
    "`{name}` = {value}", '"{name}" = {value}', "max_threads = 1, {name} = {value}",
    "{name} = DEFAULT",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def collector(folder: Path) -> Iterator[CollectorProcess]:
    with running_collector(folder / "data") as running:
        body = trace_request(5, {"evenkeel.status": "ok"}, service="q").SerializeToString()
        headers = {"content-type": "application/x-protobuf"}
        httpx.post(f"{running.http_url}/v1/traces", content=body, headers=headers)
        wait_for(lambda: running.rows("SELECT count() FROM spans") == [(5,)])
        yield running


@pytest.fixture(scope="module")
def http(collector: CollectorProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=collector.query_url, timeout=120) as client:
        yield client


def ask(http: httpx.Client, sql: str, **parameters: str) -> httpx.Response:
    return http.post("/", params=parameters, content=sql)


def code(answer: httpx.Response) -> int:
    return int(answer.headers.get("x-clickhouse-exception-code", "0"))


@pytest.fixture(scope="module")
def settings(http: httpx.Client) -> list[str]:
    """Every setting of the engine, by the engine's own word."""
    names = ask(http, "SELECT name FROM system.settings FORMAT TSV").text.split()
    assert len(names) > 1000
    return names


def test_no_setting_is_admitted_that_names_a_file_or_a_place() -> None:
    assert [name for name in (*CLIENT_SETTINGS, *LIMITED) if HARMFUL.search(name)] == []
    assert len([name for name in ("output_format_schema",) if HARMFUL.search(name)]) == 1


def test_every_setting_of_the_engine_that_is_not_listed_is_refused(
    http: httpx.Client, settings: list[str]
) -> None:
    admitted = [name for name in settings if code(ask(http, "SELECT 1", **{name: "1"})) != READONLY]
    # Those of the protocol itself have no effect here.
    assert set(admitted) - TRANSPORT_PARAMETERS - {"database"} == {*CLIENT_SETTINGS, *LIMITED}


def test_the_engine_knows_every_setting_and_format_that_is_listed(
    http: httpx.Client, settings: list[str]
) -> None:
    assert {*CLIENT_SETTINGS, *LIMITED} <= set(settings)
    formats = ask(http, "SELECT name FROM system.formats WHERE is_output FORMAT TSV").text.split()
    assert {name.lower() for name in formats} >= FORMATS


@pytest.mark.parametrize("name", CLIENT_SETTINGS)
def test_no_setting_takes_a_path(http: httpx.Client, folder: Path, name: str) -> None:
    victim = folder / "data" / "victim"
    victim.write_text(CANARY)
    answer = ask(http, "SELECT 1 AS a FORMAT JSON", **{name: str(victim)})
    assert code(answer) == BAD_ARGUMENTS
    assert victim.read_text() == CANARY


@pytest.mark.parametrize("place", SETTINGS_PLACES)
def test_no_harmful_setting_stands_in_a_clause(
    http: httpx.Client, settings: list[str], place: str
) -> None:
    """Each place sees its share of the engine's harmful settings, in every way of writing one."""
    harmful = [name for name in settings if HARMFUL.search(name)]
    number = SETTINGS_PLACES.index(place)
    chosen = ["readonly", "output_format_schema", *harmful[number :: len(SETTINGS_PLACES) * 4]]
    for name, form in zip(chosen, itertools.cycle(SETTINGS_LISTS), strict=False):
        sql = place.format(form.format(name=name, value="'0'"))
        answer = ask(http, sql)
        assert answer.status_code >= 400, sql
        assert code(answer) in (READONLY, 62), (sql, answer.text)


@pytest.mark.parametrize("form", SETTINGS_LISTS)
def test_a_subquery_may_not_lift_its_limits(http: httpx.Client, form: str) -> None:
    sql = f"SELECT * FROM (SELECT 1 SETTINGS {form.format(name='readonly', value=0)})"
    answer = ask(http, sql)
    assert code(answer) == READONLY, answer.text


SCHEMA_WRITERS = [
    ("SELECT 1 AS a FORMAT Protobuf", {"output_format_schema": "{victim}"}),
    ("SELECT 1 AS a", {"output_format_schema": "{victim}", "default_format": "Protobuf"}),
    ("SELECT 1 AS a", {"output_format_schema": "{victim}", "default_format": "protobufList"}),
    ("SELECT formatRow('Protobuf', 1)", {"output_format_schema": "{victim}"}),
    ("SELECT 1 AS a FORMAT Protobuf SETTINGS output_format_schema = '{victim}'", {}),
    ("SELECT * FROM (SELECT 1 SETTINGS a.b = 1, output_format_schema = '{victim}')", {}),
    (
        "SELECT * FROM format(CSV, 'a Int8', 'x')",
        {"input_format_allow_errors_num": "9", "input_format_record_errors_file_path": "{victim}"},
    ),
    ("SELECT 1 FORMAT AvroConfluent", {"format_avro_schema_registry_url": "http://127.0.0.1:9/"}),
    ("SELECT 1 INTO OUTFILE '{victim}' TRUNCATE", {}),
    ("SELECT 1 INTO OUTFILE '{victim}' APPEND FORMAT CSV", {}),
    ("EXPLAIN SELECT 1 INTO OUTFILE '{victim}' TRUNCATE", {}),
    ("SHOW TABLES INTO OUTFILE '{victim}' TRUNCATE", {}),
    ("INSERT INTO FUNCTION file('{victim}', CSV, 'a Int8') SELECT 1", {}),
    ("EXPLAIN PIPELINE INSERT INTO FUNCTION file('{victim}', CSV, 'a Int8') SELECT 1", {}),
    ("BACKUP DATABASE evenkeel TO File('{victim}')", {}),
    ("SELECT 1 PARALLEL WITH BACKUP DATABASE evenkeel TO File('{victim}')", {}),
]


@pytest.mark.parametrize(("sql", "parameters"), SCHEMA_WRITERS)
def test_no_query_overwrites_a_file(
    http: httpx.Client, folder: Path, sql: str, parameters: dict[str, str]
) -> None:
    # One that the kernel would let the collector write, and one that it would not.
    for victim in (folder / "data" / "victim.proto", folder / "victim.proto"):
        victim.write_text(CANARY)
        filled = {name: value.format(victim=victim) for name, value in parameters.items()}
        answer = ask(http, sql.format(victim=victim), **filled)
        assert answer.status_code >= 400, answer.text
        assert code(answer) in (READONLY, 62), answer.text
        assert victim.read_text() == CANARY


REFUSED = [
    "SELECT 1 PARALLEL WITH SELECT 2",
    "SELECT 1 PARALLEL WITH KILL QUERY WHERE 1",
    "EXPLAIN SYSTEM FLUSH LOGS",
    "EXPLAIN CREATE TABLE t (a Int8) ENGINE = Memory",
    "EXPLAIN TABLE OVERRIDE mysql('127.0.0.1:1', 'd', 't', 'u', 'p') COLUMNS (a Int8)",
    "SELECT * FROM format(CSV, 'a Int8', '1')",
    "SELECT * FROM fuzzQuery('SELECT 1')",
    "SELECT * FROM dictionary('d')",
    "SELECT * FROM loop(system.one)",
    "SELECT * FROM viewExplain('EXPLAIN', '', (SELECT 1))",
    "SELECT getServerSetting('path')",
    "SELECT filesystemAvailable()",
    "SELECT arrayMap(addressToLine, [1])",
    "SELECT logTrace('forged')",
    "SELECT * APPLY(`file`) FROM (SELECT '/etc/passwd')",
    "SELECT * REPLACE (file(a) AS a) FROM (SELECT '/etc/passwd' AS a)",
    "SELECT COLUMNS('.') APPLY(x -> file(x)) FROM (SELECT '/etc/passwd' AS a)",
    "SELECT \u201cfile\u201d('/etc/passwd')",
    "SELECT $x$'$x$ || file('/etc/passwd')",
    "SELECT '\\'' || file('/etc/passwd') || '\\''",
    "SELECT /*/*'*/ file('/etc/passwd') /*'*/",
    "SELECT #'\nfile('/etc/passwd')",
    "SELECT\u00a0file('/etc/passwd')",
    *[f"SELECT 1 FORMAT {name}" for name in (
        "Protobuf", "ProtobufList", "ProtobufSingle", "Template", "CustomSeparated", "MySQLWire",
        "PostgreSQLWire", "ODBCDriver2", "AvroConfluent", "PNG", "CapnProto", "Nonsense",
        "`Protobuf`", '"Protobuf"', "protobuf", "DataFrame",
    )],
]  # fmt: skip


@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_not_known_to_be_harmless_is_refused(http: httpx.Client, sql: str) -> None:
    answer = ask(http, sql)
    assert code(answer) in (READONLY, 62), answer.text
    assert "root:" not in answer.text


@pytest.mark.parametrize("name", ["Protobuf", "DataFrame", "ArrowTable", "Nonsense", "x" * 9999])
def test_a_format_outside_the_query_is_checked_too(http: httpx.Client, name: str) -> None:
    assert code(ask(http, "SELECT 1", default_format=name)) == READONLY
    answer = http.post("/", content="SELECT 1", headers={"x-clickhouse-format": name})
    assert code(answer) == READONLY


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_listed_format_gives_a_result_or_an_error(http: httpx.Client, name: str) -> None:
    assert ask(http, f"SELECT 'a' AS a FORMAT {name}").status_code == 200


WAYS_IN = [
    {"params": {"query": "DROP TABLE spans", "database": "evenkeel"}},
    {"params": {"query": "SELECT 1;"}, "content": "DROP TABLE evenkeel.spans"},
    {"params": {"query": "SELECT 1 PARALLEL WITH"}, "content": "DROP TABLE evenkeel.spans"},
    {"files": {"query": (None, "DROP TABLE evenkeel.spans")}},
    {"files": {"output_format_schema": (None, "/tmp/x"), "query": (None, "SELECT 1")}},
    {"files": {"query": (None, "SELECT * FROM ext"), "ext": ("ext", "1\n")},
     "params": {"ext_structure": "a Int8", "ext_format": "TSV"}},
    {"files": {"ext": ("ext", "1\n")}, "params": {"query": "SELECT * FROM ext"}},
    {"params": {"query": "SELECT 1", "decompress": "1", "readonly": "0"}},
    {"content": b"\x82\x00\x00\x00", "params": {"decompress": "1"}},
    {"content": b"SELECT '\xff\xfe'"},
    {"content": "SELECT {a:Identifier} FROM system.one", "params": {"param_a": "file(1)"}},
    {"content": "SELECT {a:Identifier} FROM system.one"},
    {"content": "SELECT {a:UInt8}", "params": {"param_a": "1) OR file('/etc/passwd'"}},
    {"content": "SELECT 1", "params": {"database": "x`; SET readonly = 0; --"}},
    {"content": "SELECT 1", "params": {"SELECT": "1"}},
    {"content": "SELECT 1", "params": {"": "1"}},
    {"content": "SELECT 1", "params": {"max_threads, readonly": "1"}},
    {"content": "SELECT 1", "params": {"max_threads = 1, readonly": "0"}},
    {"content": "SELECT 1", "params": {"max_threads": "1, readonly = 0"}},
    {"content": "SELECT 1", "params": {"limit": "1, readonly = 0"}},
    {"content": "SELECT 1", "params": {"session_timezone": "UTC', readonly = '0"}},
    {"content": "SELECT 1", "params": {"format_csv_delimiter": "ab"}},
    {"content": "SELECT 1", "params": {"max_block_size": "0"}},
    {"content": "SELECT 1", "params": {"max_block_size": "9999999999"}},
]  # fmt: skip


@pytest.mark.parametrize("request_", WAYS_IN, ids=range(len(WAYS_IN)))
def test_every_way_in_leads_through_the_same_rules(
    http: httpx.Client, request_: dict[str, object]
) -> None:
    answer = http.post("/", **request_)  # type: ignore[arg-type]
    assert code(answer) in (READONLY, BAD_ARGUMENTS, 60, 62, 81, 456, 457), answer.text
    assert ask(http, "SELECT count() FROM evenkeel.spans").text == "5\n"


def test_parameters_that_the_query_has_no_place_for_change_nothing(http: httpx.Client) -> None:
    names = {f"param_{name}": "1" for name in ("readonly", "a b", "'", "x = 1, readonly", "")}
    assert ask(http, "SELECT {a:UInt8}", param_a="7", **names).text == "7\n"


def test_no_query_ends_anothers(collector: CollectorProcess, http: httpx.Client) -> None:
    """KILL beside a query would end what another client asks."""
    codes: list[int] = []
    slow = "SELECT count() FROM numbers(3000000000000) WHERE sipHash64(number) % 7 = 3"

    def wait_in_vain() -> None:
        with httpx.Client(base_url=collector.query_url, timeout=120) as other:
            codes.append(code(ask(other, slow, max_execution_time="8")))

    asking = threading.Thread(target=wait_in_vain)
    asking.start()
    running = "SELECT count() FROM system.processes WHERE query LIKE '%3000000000000%'"
    wait_for(lambda: int(ask(http, running).text) > 1 or not asking.is_alive())
    kill = "KILL QUERY WHERE query LIKE '%3000000000000%' SYNC"
    assert code(ask(http, f"SELECT 1 PARALLEL WITH {kill}")) == READONLY
    asking.join()
    # Its time was over; 394 is what a killed query gets.
    assert codes == [159]


def test_the_guard_sees_what_the_engine_parses() -> None:
    """Whatever the engine finds in a statement that may run is harmless by its own parser."""
    queries = hostile_queries(seed=20_260, count=1500)
    parsed = parse_all(queries)
    missed = [each for each in parsed if each.formatted and each.refusal is None and each.found]
    assert missed == []
    # It tests something only if the engine could parse them, and found something in many.
    assert sum(each.formatted is not None for each in parsed) > 800
    assert sum(bool(each.found) for each in parsed) > 300
    assert sum(each.refusal is None and each.formatted is not None for each in parsed) > 200
    odd = [each for each in parsed if each.refusal and "rewrite that part" in each.refusal]
    assert odd == []


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_what_a_tenant_gets_does_not_depend_on_others_rows(tmp_path: Path, every: int) -> None:
    """The same questions to a store with its rows alone, and to one with others' between them.

    Each function of the engine is asked about every column, or about a third of them.
    """
    # Avro writes a random mark between its blocks.
    questions = telling_questions(sorted(TENANT_FORMATS - {"avro"}))
    names = (
        "dumpColumnStructure", "lowCardinalityIndices", "lowCardinalityKeys", "blockNumber",
        "rowNumberInAllBlocks", "byteSize", "estimateCompressionRatio", "groupArray", "uniq", "tid",
        # They read values of one kind, and fail on others.
        "base64Decode", "base32Decode", "javaHashUTF16LE", "toUInt8", "toDate", "toDateTime",
        "toIPv4", "toIPv6", "IPv4StringToNum", "toUUID", "readWKT", "ULIDStringToDateTime",
        "JSONAllPaths", "parseDateTimeBestEffort", "toDecimal32", "reinterpretAsUInt64", "lower",
    )  # fmt: skip
    questions += [Question(sql) for sql in SHAPES]
    calls = questions_with(names)
    calls += questions_of(
        [
            "toUInt8(replaceOne({}, 'globex-number0', '!'))", "leftPad({}, toUInt8({}))",
            "repeat('a', toUInt8({}))", "parseDateTime({}, '%Y-%m-%d')",
            "accurateCast({}, 'UInt8')",
            "CAST({}, 'Date')", "CAST({}, 'JSON')", "bitShiftLeft(1, toUInt8({}))",
            "decrypt('aes-128-ecb', {}, '0123456789abcdef')", "intDiv(1, toUInt8({}) + 1)",
            "JSONExtractInt({}, 'a') + throwIf(NOT isValidJSON({}))",
        ]
    )  # fmt: skip
    questions += calls[::every]
    alone = answers(tmp_path / "alone", questions, has_others=False)
    among = answers(tmp_path / "among", questions, has_others=True)
    for question, first, second in zip(questions, alone, among, strict=True):
        assert first == second, question
        assert not shows_others(question, second), question
        assert not quotes_own_value(question, first), (question, first)
    # They tell something only if most were answered.
    assert sum(not answer.startswith("[1") for answer in alone) > len(alone) / 3


def test_the_store_is_as_it_was(collector: CollectorProcess) -> None:
    assert collector.rows("SELECT count() FROM spans") == [(5,)]
    assert collector.process.poll() is None
    assert "Traceback" not in collector.stderr()
