import pytest

from collector.query_guard import Guard, RefusedError, is_settings_list, result_format

GUARD = Guard.of_engine(iter(["numbers", "file", "url", "s3", "remote", "python", "merge", "new"]))


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
        "SELECT SETTINGS FROM t WHERE SETTINGS = 1",
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
    with pytest.raises(RefusedError):
        GUARD.check(formatted)


@pytest.mark.parametrize(
    ("formatted", "expected"),
    [
        ("SELECT 1", "TabSeparated"),
        ("SELECT 1 FORMAT Native", "Native"),
        ("SELECT 1 FORMAT JSON SETTINGS max_threads = 1", "JSON"),
        ("SELECT 1 SETTINGS max_threads = 1 FORMAT CSV", "CSV"),
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
    with pytest.raises(RefusedError):
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
    with pytest.raises(RefusedError):
        GUARD.for_tenant().check(formatted)


@pytest.mark.parametrize("value", ["merge", "t.prewhere", "Merge", "file"])
def test_a_name_put_in_by_parameter_is_refused_like_any(value: str) -> None:
    with pytest.raises(RefusedError):
        GUARD.for_tenant().check_identifiers("SELECT {x:Identifier}", {"x": value})


@pytest.mark.parametrize(
    "formatted", ["SELECT a FROM t", "DESCRIBE TABLE t", "WITH 1 AS x SELECT x"]
)
def test_a_tenants_reader_may_read(formatted: str) -> None:
    GUARD.for_tenant().check(formatted)
