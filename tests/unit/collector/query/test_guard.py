import re

import pytest

from evenkeel_collector.query.guard import (
    Guard,
    QueryRefusedError,
    is_settings_list,
    parameters_of,
    result_format,
)
from evenkeel_collector.query.names import CLIENT_SETTINGS

GUARD = Guard.of_engine(["numbers", "file", "url", "s3", "remote", "python", "merge", "new"])
TENANT_GUARD = GUARD.for_tenant(["_part_offset"])


@pytest.mark.parametrize(
    "formatted",
    [
        "SELECT 1",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "SELECT * FROM numbers(10)",
        "SELECT * FROM merge('evenkeel', 'requests')",
        "SELECT 'file(1) INTO OUTFILE; DROP TABLE x'",
        "SELECT 'it\\'s file(1)'",
        "SELECT `odd \\` name` FROM t",
        "SELECT url FROM t",
        "SELECT into FROM t",
        "SHOW TABLES",
        "DESCRIBE TABLE requests",
        "EXISTS TABLE requests",
        "EXPLAIN SELECT 1",
        "SELECT aim, AIX FROM t",
        "SELECT settings FROM t WHERE settings = 1",
        "SELECT ' SETTINGS a = 1'",
        "SELECT {q:String}, {ids:Array(UInt8)}",
    ],
)
def test_reading_the_store_is_allowed(formatted: str) -> None:
    GUARD.check(formatted)


@pytest.mark.parametrize(
    "formatted",
    [
        "",
        "INSERT INTO t FORMAT Values",
        "DROP TABLE t",
        "ALTER TABLE t DELETE WHERE 1",
        "KILL QUERY WHERE 1 ASYNC",
        "SET readonly = 0",
        "USE system",
        "SYSTEM SHUTDOWN",
        "EXECUTE AS default SELECT 1",
        "SELECT file('/etc/passwd')",
        "SELECT arrayMap(file, ['/etc/passwd'])",
        "SELECT * APPLY file FROM (SELECT '/etc/passwd')",
        "SELECT `file`('/etc/passwd')",
        "SELECT `fi\\le`('/etc/passwd')",
        "SELECT * FROM url('http://host/', 'CSV')",
        "SELECT * FROM URL('http://host/', 'CSV')",
        "SELECT * FROM s3 ('http://host/', 'CSV')",
        "SELECT * FROM Python(secret)",
        "SELECT * FROM new(1)",
        "SELECT 1 INTO OUTFILE '/tmp/x'",
        "SELECT 1 into outfile '/tmp/x'",
        "EXPLAIN AST SELECT 1 INTO OUTFILE '/tmp/x'",
        "SELECT 1 SETTINGS max_threads = 1",
        "SELECT * FROM (SELECT 1 SETTINGS max_result_rows = 0)",
        "SELECT aiGenerate('x')",
        "SELECT AIEmbed('x')",
    ],
)
def test_everything_else_is_refused(formatted: str) -> None:
    with pytest.raises(QueryRefusedError):
        GUARD.check(formatted)


@pytest.mark.parametrize(
    ("formatted", "expected"),
    [
        ("SELECT 1", "TabSeparated"),
        ("SELECT 1 FORMAT Native", "Native"),
        ("SELECT 1 AS format FORMAT CSV", "CSV"),
        ("SELECT ' FORMAT Native'", "TabSeparated"),
    ],
)
def test_the_format_is_read_from_the_end(formatted: str, expected: str) -> None:
    assert result_format(formatted, "TabSeparated") == expected


def test_only_the_clients_own_list_of_settings_is_known_as_such() -> None:
    assert is_settings_list("SELECT name, value, readonly FROM system.settings LIMIT 10000")
    assert not is_settings_list("SELECT name FROM system.settings")


@pytest.mark.parametrize("value", ["requests", "evenkeel.requests", "ttft_s"])
def test_a_plain_name_may_be_an_identifier_parameter(value: str) -> None:
    GUARD.check_identifiers("SELECT * FROM {t:Identifier}", {"t": value})


@pytest.mark.parametrize(
    "value", ["file", "x.File", "/etc/passwd", "fil\\x65", "`file`", "", "a b"]
)
def test_other_identifier_parameters_are_refused(value: str) -> None:
    with pytest.raises(QueryRefusedError):
        GUARD.check_identifiers("SELECT arrayMap({f:Identifier}, ['x'])", {"f": value})
    GUARD.check_identifiers("SELECT {f:String}", {"f": value})


@pytest.mark.parametrize(
    "formatted",
    [
        "EXPLAIN SELECT 1",
        "SELECT * FROM (EXPLAIN SELECT 1)",
        "SELECT 1 FROM t PREWHERE a = 1",
        "SHOW TABLES",
        "SELECT * FROM merge('evenkeel', 'requests')",
        "SELECT * FROM file('x')",
    ],
)
def test_a_tenants_reader_is_refused_what_tells_of_others(formatted: str) -> None:
    with pytest.raises(QueryRefusedError):
        TENANT_GUARD.check(formatted)


@pytest.mark.parametrize("value", ["merge", "t.prewhere", "Merge", "file"])
def test_a_name_put_in_by_parameter_is_refused_like_any(value: str) -> None:
    with pytest.raises(QueryRefusedError):
        TENANT_GUARD.check_identifiers("SELECT {x:Identifier}", {"x": value})


@pytest.mark.parametrize(
    "formatted", ["SELECT a FROM t", "DESCRIBE TABLE t", "WITH 1 AS x SELECT x"]
)
def test_a_tenants_reader_may_read(formatted: str) -> None:
    TENANT_GUARD.check(formatted)


@pytest.mark.parametrize(
    "formatted",
    [
        "SELECT * FROM (SELECT 1 SETTINGS a.b = 1, readonly = 0)",
        "SELECT * FROM (SELECT 1 SETTINGS allow_ddl, readonly = 0)",
        "SELECT * FROM (SELECT 1 SETTINGS `a b` = 1)",
        "SELECT 1 AS SETTINGS",
        "SHOW SETTINGS LIKE 'x'",
        "SELECT 1 FORMAT Protobuf",
        "SELECT 1 FORMAT protobuf",
        "SELECT 1 FORMAT `Template`",
        "SELECT 1 PARALLEL WITH KILL QUERY WHERE 1 ASYNC",
        "EXPLAIN SYSTEM FLUSH LOGS",
        "EXPLAIN AST INSERT INTO t FORMAT Values",
        "EXPLAIN header = 1 CREATE TABLE x",
        "SELECT `x.file`('/etc/passwd')",
        # What the formatter never prints, and the engine would cut in its own way.
        "SELECT 1 -- file",
        "SELECT 1 /* x */",
        'SELECT "a"',
        "SELECT $a$x$a$",
        "SELECT 1 # x",
        "SELECT 1; SELECT 2",
        "SELECT\n1",
        "SELECT \u2019x\u2019",
        "SELECT\u00a01",
        "SELECT 'open",
        "SELECT `open",
        "SELECT `fi\\x6ce`('x')",
        "SELECT \\",
    ],
)
def test_what_is_not_known_is_refused(formatted: str) -> None:
    with pytest.raises(QueryRefusedError):
        GUARD.check(formatted)


@pytest.mark.parametrize(
    "formatted",
    [
        "EXPLAIN SELECT 1",
        "EXPLAIN AST SELECT 1",
        "EXPLAIN QUERY TREE run_passes = 0 WITH 1 AS x SELECT x",
        "EXPLAIN indexes = 1, header = 1 SELECT 1",
        "SELECT a - -1, -(-1), 1.5e-3, [1, 2][1], (1, 2).1, CAST(a, 'String'), x -> (x + 1)",
        "SELECT a.`b c`, {p:Array(String)}, '\\'--', '/*', ' FORMAT Protobuf' FORMAT JSONEachRow",
        "SELECT format, settings FROM t ORDER BY format ASC",
    ],
)
def test_ordinary_queries_are_not_refused(formatted: str) -> None:
    GUARD.check(formatted)


@pytest.mark.parametrize(
    "formatted",
    [
        "SELECT max(_part_offset) FROM t",
        "SELECT t._part_offset FROM t",
        "SELECT `t._part_offset` FROM t",
        "SELECT _Part_Offset FROM t",
        "SELECT count() FROM t WHERE indexHint(a = 1)",
        "SELECT arrayMap(lowCardinalityKeys, [a]) FROM t",
        "SELECT * FROM t SAMPLE 1 / 2",
        "SELECT 1 FORMAT JSONEachRowWithProgress",
    ],
)
def test_a_tenants_reader_is_refused_how_rows_lie(formatted: str) -> None:
    with pytest.raises(QueryRefusedError):
        TENANT_GUARD.check(formatted)


def test_only_parameters_with_a_place_are_passed_on() -> None:
    formatted = "SELECT {a:String}, {b:Array(UInt8)}, '{c}'"
    assert parameters_of(formatted, {"a": "1", "b": "[2]", "c": "3", "d": "4"}) == {
        "a": "1",
        "b": "[2]",
    }


@pytest.mark.parametrize("pattern", CLIENT_SETTINGS.values(), ids=CLIENT_SETTINGS)
def test_no_value_of_a_setting_is_a_path_or_long(pattern: re.Pattern[str]) -> None:
    for value in (
        "/tmp/evenkeel-hostile.proto",
        "/etc/passwd",
        "http://127.0.0.1:9/",
        "x" * 65,
        "\n",
    ):
        assert not pattern.fullmatch(value)
