"""The docs of the collector name what the code has."""

import re
from pathlib import Path

import pytest

from evenkeel_collector.log.write_ahead_log import WriteAheadLog
from evenkeel_collector.store.migrations import read_migrations
from evenkeel_collector.telemetry.metrics import SelfMetrics

DOCS = Path(__file__).parents[3] / "docs"
TABLES = (
    "spans",
    "requests",
    "requests_1m",
    "engine_state",
    "engine_steps",
    "eval_results",
    "feedback",
    "live_evaluations",
)


def columns(table: str) -> list[str]:
    sql = "".join(migration.sql for migration in read_migrations())
    match = re.search(rf"CREATE TABLE IF NOT EXISTS {table} \(\n(.*?)\n\)\n", sql, re.DOTALL)
    assert match is not None
    names = re.findall(r"^    (?!INDEX|PROJECTION|\))(\w+) ", match[1], re.MULTILINE)
    names += re.findall(rf"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS (\w+)", sql)
    assert len(names) >= 10
    return names


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_described(table: str) -> None:
    text = (DOCS / "data-model.md").read_text(encoding="utf-8")
    section = text.split(f"## `{table}`", 1)[1].split("\n## ", 1)[0]
    missing = [name for name in columns(table) if f"`{name}" not in section]
    assert missing == []


def test_every_metric_is_described(tmp_path: Path) -> None:
    text = (DOCS / "collector.md").read_text(encoding="utf-8")
    metrics = SelfMetrics()
    log = WriteAheadLog(tmp_path, "node")
    metrics.watch_log(log)
    log.close()
    names = {family.name for family in metrics.registry.collect()}
    assert len(names) > 10
    assert {name for name in names if name not in text} == set()
