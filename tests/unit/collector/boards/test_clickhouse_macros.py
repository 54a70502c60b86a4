"""The macros that our boards use, expanded as the data source does (its macros_test.go)."""

import pytest

from tests.fixtures.clickhouse_macros import ALL, expand

FROM_S, TO_S, STEP_S = 1_795_168_800, 1_795_172_400, 60


def expanded(sql: str, **chosen: object) -> str:
    return expand(sql, FROM_S, TO_S, STEP_S, chosen)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "WHERE $__timeFilter(t.time)",
            "WHERE t.time >= toDateTime(1795168800) AND t.time <= toDateTime(1795172400)",
        ),
        (
            "SELECT $__timeInterval(minute) AS time",
            "SELECT toStartOfInterval(toDateTime(minute), INTERVAL 60 second) AS time",
        ),
        ("sum(x) / $__interval_s", "sum(x) / 60"),
        ("$__conditionalAll(a IN (${a:sqlstring}), $a)", "a IN ('x','it''s')"),
        ("a IN (${quoted:sqlstring})", """a IN ('q\\"x')"""),
        ("a IN (${injected:sqlstring})", "a IN ('a\\'') OR 1=1 --')"),
        ("$__conditionalAll(b IN (${b:sqlstring}), $b) AND 2", "1=1 AND 2"),
    ],
)
def test_macros(sql: str, expected: str) -> None:
    values = {"a": ["x", "it's"], "b": ALL, "quoted": ['q"x'], "injected": ["a\\') OR 1=1 --"]}
    assert expanded(sql, **values) == expected


@pytest.mark.parametrize("sql", ["$__timeFiltr(time)", "x = $c", "${c:sqlstring}", "$__interval"])
def test_what_there_is_not_is_an_error(sql: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        expanded(sql, a=["x"])
