import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_collector.store.retention import (
    COMMENT_PREFIX,
    TABLES,
    expiry_of,
    read_retention,
)

DAY_S = 86400


def test_a_table_without_a_rule_is_kept_forever() -> None:
    assert {rule.ttl(table) for table, rule in read_retention("").items()} == {""}
    assert set(read_retention("")) == set(TABLES)


def test_a_tenant_with_a_rule_of_its_own_is_left_out_of_the_tables() -> None:
    rule = read_retention("requests=30d, acme/requests=1.5h")["requests"]
    assert (rule.keep_s, rule.keep_s_of_tenant) == (30 * DAY_S, {"acme": 5400})
    assert rule.ttl("requests") == (
        "toDateTime(time) + toIntervalSecond(5400) DELETE WHERE ifNull(tenant, '') = 'acme', "
        "toDateTime(time) + toIntervalSecond(2592000) DELETE"
        " WHERE ifNull(tenant, '') NOT IN ('acme')"
    )


def test_a_comment_says_when_rows_expire_if_all_of_a_table_do() -> None:
    rules = read_retention(", ".join(f"{table}=2h" for table in TABLES))
    for table, rule in rules.items():
        expiry = f"{TABLES[table].time} + toIntervalSecond(7200)"
        assert expiry_of(COMMENT_PREFIX + rule.ttl(table)) == expiry
    for text in ("requests=30d, acme/requests=1.5h", "acme/requests=1.5h"):
        assert expiry_of(COMMENT_PREFIX + read_retention(text)["requests"].ttl("requests")) is None
    assert expiry_of("") is None


def test_a_tenants_name_cannot_leave_its_quotes() -> None:
    rule = read_retention(r"a'b\/requests_1m=2h")["requests_1m"]
    assert r"tenant = 'a\'b\\'" in rule.ttl("requests_1m")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spans", "is not TABLE=TIME"),
        ("traces=1d", "tables: spans"),
        ("spans=1", "not a duration"),
        ("spans=5m", "between 1h and 7300d"),
        ("spans=9000d", "between 1h and 7300d"),
        ("acme/engine_steps=7d", "rows of engine_steps have no tenant; write engine_steps=7d"),
        ("spans=1d,spans=2d", "duplicates an earlier rule"),
        ("a/spans=1d,a/spans=2d", "duplicates an earlier rule"),
    ],
)
def test_a_wrong_rule_is_said(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_retention(text)
