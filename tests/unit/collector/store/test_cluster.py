import re

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_collector.store.cluster import cluster_schema, migrations_table
from evenkeel_collector.store.judged_sql import judged_view
from evenkeel_collector.store.migrations import Migration, read_migrations

MIGRATIONS = read_migrations()
SCHEMA = cluster_schema("prod", MIGRATIONS)
STATEMENTS = [one for each in MIGRATIONS for one in each.statements]


def rendered() -> list[str]:
    return [text for statement in STATEMENTS for text in SCHEMA.render(statement)]


def test_tables_that_keep_rows_are_replicated_and_distributed() -> None:
    assert {"spans", "requests", "requests_1m", "requests_1h", "engine_state"} <= SCHEMA.tables
    assert "otlp_traces" not in SCHEMA.tables
    everything = "\n".join(rendered())
    for table in SCHEMA.tables:
        assert f"IF NOT EXISTS {table}_local ON CLUSTER 'prod'" in everything
        assert f"Distributed('prod', currentDatabase(), '{table}_local', rand())" in everything
        path = f"('/clickhouse/tables/{{shard}}/evenkeel/{table}_local', '{{replica}}')"
        assert path in everything
    assert "non_replicated" not in everything
    assert re.search(r"ENGINE = (Aggregating)?MergeTree", everything) is None


def test_every_statement_names_the_cluster_once() -> None:
    for statement in [*rendered(), migrations_table("prod")]:
        assert statement.count("ON CLUSTER 'prod'") == 1


def test_views_stay_on_their_node_and_readers_see_all_of_them() -> None:
    views = [text for text in rendered() if "MATERIALIZED VIEW" in text]
    assert len(views) >= 6
    passed_on = re.findall(
        r"EXISTS (\w+) ON CLUSTER 'prod' [^;]*?ENGINE = Null", "\n;".join(rendered())
    )
    assert "step_spans" in passed_on
    for text in views:
        assert re.search(rf" TO (\w+_local|{'|'.join(passed_on)})\b", text)
        assert re.search(rf"FROM ({'|'.join(passed_on)}|\w+_local AS)\b|FROM \(", text)
    (plain,) = SCHEMA.render(judged_view())
    assert plain.startswith("CREATE OR REPLACE VIEW slo_judged ON CLUSTER 'prod' AS")
    assert "FROM requests\n" in plain


def test_a_dropped_view_is_dropped_on_every_node() -> None:
    assert SCHEMA.render("DROP VIEW IF EXISTS old") == ["DROP VIEW IF EXISTS old ON CLUSTER 'prod'"]


def test_how_rows_are_kept_is_set_where_they_are() -> None:
    assert SCHEMA.render("ALTER TABLE spans MODIFY SETTING merge_selector_base = 12") == [
        "ALTER TABLE spans_local ON CLUSTER 'prod' MODIFY SETTING merge_selector_base = 12"
    ]
    assert all(
        "ALTER TABLE requests_1m ON" not in each for each in rendered() if "PROJECTION" in each
    )


def test_an_unknown_statement_and_a_wrong_name_are_said() -> None:
    with pytest.raises(ConfigurationError, match="no cluster form"):
        SCHEMA.render("OPTIMIZE TABLE spans")
    with pytest.raises(ConfigurationError, match="not a valid cluster name"):
        cluster_schema("a' b", [Migration(1, "x", "")])
