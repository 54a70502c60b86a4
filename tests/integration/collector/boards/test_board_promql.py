"""Every PromQL query of every board finds data among the metrics that we expose.

promtool evaluates them over series made from the definitions of our metrics, and over the rules
that `evenkeel slo export` writes. tests/integration/runtime/test_exposition.py compares the
definitions with the pages of real servers.
"""

import re
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bench.slo_promtool import find_promtool
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel_collector.slo.formats.prometheus import prometheus_rules
from tests.checkout import ROOT
from tests.fixtures.board_queries import BoardQuery, prometheus_queries
from tests.fixtures.metric_series import input_series


def ready(expr: str) -> str:
    """Return PromQL with every variable replaced; `.+` does not match a label that is missing."""
    # It keeps a panel at 0 while nothing happened, and would hide a metric that does not exist.
    expr = expr.replace("$__rate_interval", "5m").replace(" or vector(0)", "")
    return re.sub(r"\$\w+(\(/\.\+\)\?)?", ".+", expr)


def checks(query: BoardQuery) -> list[str]:
    """Return expressions that are 1 if the query finds data, with every label that it names."""
    expr = ready(query.text)
    grouped = ", ".join(re.findall(r"by \(([^)]*)\)", expr)).split(", ")
    labels = sorted({*query.names, *grouped} - {"le", ""})
    return [
        f"count({expr}) > bool 0",
        # A group whose label is missing has the empty value, as vector(1) has.
        *(f"count((group by ({n}) ({expr})) unless on ({n}) vector(1)) > bool 0" for n in labels),
    ]


def without_data(queries: Iterable[BoardQuery], folder: Path) -> list[str]:
    """Return the names of the queries that find nothing, or not all their labels."""
    by_check = {check: query.name for query in queries for check in checks(query)}
    rules = folder / "rules.yml"
    rules.write_text(prometheus_rules(read_slo_file(ROOT / "slos.yaml").slos))
    expected = {"eval_time": "30m", "exp_samples": [{"labels": "{}", "value": 1}]}
    tests = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": input_series(),
                "promql_expr_test": [{"expr": check, **expected} for check in by_check],
            }
        ],
    }
    path = folder / "tests.yml"
    path.write_text(yaml.safe_dump(tests, width=10_000))
    result = subprocess.run(
        [find_promtool(), "test", "rules", str(path)], capture_output=True, text=True, timeout=300
    )
    output = result.stdout + result.stderr
    failed = [check for check in by_check if f'expr: "{check}"' in output.replace('\\"', '"')]
    assert result.returncode == 0 or failed, output
    return sorted({by_check[check] for check in failed})


def test_every_query_finds_data(tmp_path: Path) -> None:
    queries = prometheus_queries()
    assert len(queries) > 100
    assert without_data(queries, tmp_path) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("evenkeel_runtime_requests_total", "evenkeel_runtime_request_total"),
        ("evenkeel_runtime_ttft_seconds_bucket", "evenkeel_runtime_ttft_bucket"),
        ("vllm:inter_token_latency_seconds_bucket", "vllm:itl_seconds_bucket"),
        ('state="waiting"', 'state="queued"'),
        ('status=~"error|shed"', 'status=~"failed"'),
        ('alertname=~"SloBudgetBurn', 'alertname=~"SloBurn'),
        ("by (status)", "by (outcome)"),
        ("slo:current_burn_rate:ratio", "slo:burn_rate:ratio"),
    ],
)
def test_a_query_about_what_there_is_not_is_found(before: str, after: str, tmp_path: Path) -> None:
    query = next(query for query in prometheus_queries() if before in query.text)
    changed = replace(query, text=query.text.replace(before, after), name="changed")
    assert without_data([query, changed], tmp_path) == ["changed"]


def test_names_that_engines_share_do_not_count_beside_an_engines_own(tmp_path: Path) -> None:
    shared = [q for q in prometheus_queries() if "gen_ai_server_time_to_first" in q.text]
    query = next(q for q in shared if q.kind != "variable")
    beside = replace(query, text=query.text.replace('=~"$target"', '="server:1"'), name="beside")
    assert beside.text != query.text
    assert without_data([query, beside], tmp_path) == ["beside"]


def test_prometheus_accepts_the_configuration_of_compose() -> None:
    for kind, file in (("config", "prometheus.yml"), ("rules", "slo.rules.yml")):
        result = subprocess.run(
            [find_promtool(), "check", kind, str(ROOT / "deploy" / "prometheus" / file)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert result.returncode == 0, result.stdout + result.stderr
