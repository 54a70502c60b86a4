"""A tenant's statement reads the views, whatever it calls the store's database."""

import pytest

from evenkeel_collector.query.tenant_row_filters import error_for, is_limit
from evenkeel_collector.query.tenant_views import (
    for_tenant_views,
    name_for_tenant_views,
    plain_type,
    without_tenant_views,
)

STATEMENTS = [
    ("SELECT 1 FROM evenkeel.requests", "SELECT 1 FROM evenkeel_tenant.requests"),
    ("SELECT 1 FROM `evenkeel`.`requests`", "SELECT 1 FROM evenkeel_tenant.`requests`"),
    ("SELECT x IN (evenkeel.t)", "SELECT x IN (evenkeel_tenant.t)"),
    ("SELECT evenkeel.t.x, e.x", "SELECT evenkeel_tenant.t.x, e.x"),
    ("SELECT 'evenkeel.x', a['evenkeel'] FROM t", "SELECT 'evenkeel.x', a['evenkeel'] FROM t"),
    ("SELECT 'a\\'evenkeel' FROM evenkeel.t", "SELECT 'a\\'evenkeel' FROM evenkeel_tenant.t"),
    ("SELECT {evenkeel:String} FROM t", "SELECT {evenkeel:String} FROM t"),
    ("SELECT 1 FROM {db:Identifier}.t", "SELECT 1 FROM {db:Identifier}.t"),
    ("SELECT `evenkeel.model`, evenkeels FROM t", "SELECT `evenkeel.model`, evenkeels FROM t"),
    ("SELECT 1 FROM `evenkeel.rolled`(a = 1)", "SELECT 1 FROM `evenkeel_tenant.rolled`(a = 1)"),
    ("SELECT 1 AS `evenkeel.tenant` FROM t", "SELECT 1 AS `evenkeel.tenant` FROM t"),
    ("SELECT 1 FROM system.one", "SELECT 1 FROM system.one"),
]


@pytest.mark.parametrize(("statement", "expected"), STATEMENTS)
def test_the_database_is_another_wherever_it_is_named(statement: str, expected: str) -> None:
    assert for_tenant_views(statement, {"t", "rolled"}) == expected


def test_names_in_parameters_are_redirected_part_by_part() -> None:
    assert name_for_tenant_views("evenkeel") == "evenkeel_tenant"
    assert name_for_tenant_views("evenkeel.requests") == "evenkeel_tenant.requests"
    assert name_for_tenant_views("requests") == "requests"


TYPES = [
    ("String", "String"),
    ("LowCardinality(String)", "String"),
    ("LowCardinality(Nullable(String))", "Nullable(String)"),
    ("LowCardinality(FixedString(8))", "FixedString(8)"),
    ("Map(LowCardinality(String), LowCardinality(String))", "Map(String, String)"),
    ("Array(Map(LowCardinality(String), String))", "Array(Map(String, String))"),
    ("Array(LowCardinality(Nullable(String)))", "Array(Nullable(String))"),
    ("LowCardinality(DateTime('UTC'))", "DateTime('UTC')"),
    ("LowCardinality(Nullable(DateTime64(3, 'UTC')))", "Nullable(DateTime64(3, 'UTC'))"),
]


@pytest.mark.parametrize(("type_", "expected"), TYPES)
def test_types_lose_their_dictionaries_at_any_depth(type_: str, expected: str) -> None:
    assert plain_type(type_) == expected


def test_errors_name_the_database_that_the_client_knows() -> None:
    text = "Unknown table expression identifier 'evenkeel_tenant.nothing'"
    assert without_tenant_views(text) == "Unknown table expression identifier 'evenkeel.nothing'"


ERRORS = [
    (
        117,
        "Code: 117. DB::Exception: Invalid base64Decode value (secret): while executing 'FUNCTION"
        " base64Decode(t.model :: 1) -> base64Decode(t.model) String : 0'. (INCORRECT_DATA)"
        " (version 26.9.2.1)",
        "Code: 117. DB::Exception: base64Decode failed on a value. (INCORRECT_DATA)",
    ),
    (
        27,
        "Code: 27. DB::Exception: Cannot parse 'secret' (while reading (A_B)). (CANNOT_PARSE_A)",
        "Code: 27. DB::Exception: the query failed on its rows. (CANNOT_PARSE_A)",
    ),
    (
        1,
        "Code: 1. DB::Exception: secret (SECRET) and more",
        "Code: 1. DB::Exception: the query failed on its rows. (UNKNOWN_EXCEPTION)",
    ),
    (
        241,
        "Code: 241. DB::Exception: would use 1.23 GiB. (MEMORY_LIMIT_EXCEEDED)",
        "Code: 241. DB::Exception: the query was stopped: it needs too much memory.",
    ),
    (
        394,
        "Code: 394. DB::Exception: Query was cancelled. (QUERY_WAS_CANCELLED)",
        "Code: 394. DB::Exception: the query was stopped: it was cancelled.",
    ),
]


@pytest.mark.parametrize(("code", "text", "expected"), ERRORS)
def test_errors_over_rows_name_no_value(code: int, text: str, expected: str) -> None:
    assert error_for(code, text) == expected


@pytest.mark.parametrize("code", [158, 159, 160, 241, 307, 394, 396])
def test_a_query_that_was_ended_is_not_run_again(code: int) -> None:
    assert is_limit(code)
