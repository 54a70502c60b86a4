"""The guide to the collector names each of its metrics."""

from pathlib import Path

from evenkeel_collector.log.write_ahead_log import WriteAheadLog
from evenkeel_collector.telemetry.metrics import SelfMetrics

DOCS = Path(__file__).parents[3] / "docs"


def test_every_metric_is_described(tmp_path: Path) -> None:
    text = (DOCS / "guide" / "collector.md").read_text(encoding="utf-8")
    metrics = SelfMetrics()
    log = WriteAheadLog(tmp_path, "node")
    metrics.watch_log(log)
    log.close()
    names = {family.name for family in metrics.registry.collect()}
    assert len(names) > 10
    assert {name for name in names if name not in text} == set()
