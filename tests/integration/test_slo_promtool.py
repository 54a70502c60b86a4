"""Prometheus accepts the exported rules, and finds the same firing minutes as our replay.

promtool comes with Debian's package `prometheus`; `bench/slo.py` is the long run.
"""

import random
import subprocess
from pathlib import Path

import pytest

from bench.slo_promtool import find_promtool, make_case, our_firing, promtool_differences
from evenkeel.slo_file import read_slo_file
from evenkeel.slo_prometheus import Counters, prometheus_rules

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]


def test_promtool_fires_in_the_same_minutes(tmp_path: Path) -> None:
    generator = random.Random(7)
    cases = [make_case(f"case-{i}", generator, 150) for i in range(25)]
    expected = set().union(*(our_firing(case) for case in cases))
    assert len(expected) > 100
    assert promtool_differences(cases, expected, tmp_path) == []
    # Were one minute more expected, promtool would say so.
    slo, severity, minute = min(expected, key=lambda firing: firing[2])
    assert promtool_differences(cases, expected - {(slo, severity, minute)}, tmp_path) != []


@pytest.mark.parametrize(
    "counters",
    [Counters(), Counters('http_requests_total{job="x"}', 'http_errors_total{job="x"}')],
    ids=["ours", "given"],
)
def test_promtool_accepts_the_rules_of_the_example(tmp_path: Path, counters: Counters) -> None:
    rules = tmp_path / "rules.yml"
    rules.write_text(prometheus_rules(read_slo_file(ROOT / "slos.yaml").slos, counters))
    result = subprocess.run(
        [find_promtool(), "check", "rules", str(rules)], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
