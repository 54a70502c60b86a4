"""Prometheus accepts the exported rules, and finds the same firing minutes as our replay.

promtool comes with Debian's package `prometheus`; `bench/slo.py` is the long run.
"""

import random
import subprocess
from pathlib import Path

import pytest

from bench.slo_promtool import find_promtool, make_case, our_firing, promtool_differences
from evenkeel.errors import ConfigurationError
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel_collector.slo.formats.prometheus import EventCounters, prometheus_rules
from tests.checkout import ROOT


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
    [EventCounters(), EventCounters('http_requests_total{job="x"}', 'http_errors_total{job="x"}')],
    ids=["ours", "given"],
)
def test_promtool_accepts_the_rules_of_the_example(tmp_path: Path, counters: EventCounters) -> None:
    rules = tmp_path / "rules.yml"
    rules.write_text(prometheus_rules(read_slo_file(ROOT / "slos.yaml").slos, counters))
    result = subprocess.run(
        [find_promtool(), "check", "rules", str(rules)], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr


FILE = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat}
spec:
  service: 'the "best" one'
  indicator: {metric: ttft, select: {model: support}}
  objectives: [{target: 0.9, value: 0.5}]
  timeWindow: [{duration: 2d, isRolling: true}]
  alerting: {noData: 30m}
---
apiVersion: evenkeel/v1
kind: Rule
metadata: {name: slow}
spec:
  select: {model: 'a"b'}
  threshold: {measure: ttft_p95_s, op: gt, value: 0.8, over: 10m, minRequests: 5}
---
apiVersion: evenkeel/v1
kind: Rule
metadata: {name: silent}
spec:
  absence: {after: 15m}
---
apiVersion: evenkeel/v1
kind: Rule
metadata: {name: full}
spec:
  gauge: {metric: 'vllm:used', where: {part: kv}, per: {metric: 'vllm:all'},
    op: gt, value: 0.9, over: 5m}
---
apiVersion: evenkeel/v1
kind: Rule
metadata: {name: jump}
spec:
  anomaly: {measure: e2e_p50_s, over: 2h, minEffect: 0.2}
---
apiVersion: evenkeel/v1
kind: Rule
metadata: {name: theirs}
spec:
  select: {tenant: acme}
  absence: {after: 15m}
"""
TTFT = "vllm:time_to_first_token_seconds_"
# Ten events a minute for an hour, two of them bad; then nothing.
SERIES = """\
  - {series: 'evenkeel_slo_events_total{slo="chat"}', values: '0+10x60 600x600'}
  - {series: 'evenkeel_slo_bad_events_total{slo="chat"}', values: '0+2x60 120x600'}
  - {series: 'ttft_bucket{model_name="a\\"b", le="0.5"}', values: '0x600'}
  - {series: 'ttft_bucket{model_name="a\\"b", le="2"}', values: '0+9x600'}
  - {series: 'ttft_bucket{model_name="a\\"b", le="+Inf"}', values: '0+9x600'}
  - {series: 'ttft_count{model_name="a\\"b"}', values: '0+9x600'}
  - {series: 'vllm:request_success_total{finished_reason="stop"}', values: '0+1x60 60x600'}
  - {series: 'vllm:used{part="kv", engine="0", instance="a"}', values: '95x600'}
  - {series: 'vllm:used{part="kv", engine="1", instance="a"}', values: '10x600'}
  - {series: 'vllm:all{engine="0", instance="a"}', values: '100x600'}
  - {series: 'vllm:all{engine="1", instance="a"}', values: '100x600'}
"""
EXPECTED = """\
  promql_expr_test:
  - {expr: 'slo:sli_error:ratio_rate5m{sloth_slo="chat"}', eval_time: 59m, exp_samples: [
      {labels: 'slo:sli_error:ratio_rate5m{sloth_id="the \\"best\\" one-chat",
        sloth_service="the \\"best\\" one", sloth_slo="chat", sloth_window="5m"}', value: 0.2}]}
  - {expr: 'sum(slo:period_error_budget_remaining:ratio)', eval_time: 59m,
    exp_samples: [{value: -1}]}
  - {expr: 'sum(slo:current_burn_rate:ratio)', eval_time: 59m, exp_samples: [{value: 2}]}
  - {expr: 'sum(slo:time_period:days)', eval_time: 59m, exp_samples: [{value: 2}]}
  - {expr: 'ALERTS{alertstate="firing", rule!="full"}', eval_time: 0m, exp_samples: []}
  - {expr: 'count(ALERTS{alertname="SloNoData", alertstate="firing"})', eval_time: 89m,
    exp_samples: []}
  - {expr: 'count(ALERTS{alertname="SloNoData", alertstate="firing"})', eval_time: 91m,
    exp_samples: [{value: 1}]}
  - {expr: 'count(ALERTS{rule="silent", alertstate="firing"})', eval_time: 74m, exp_samples: []}
  - {expr: 'count(ALERTS{rule="silent", alertstate="firing"})', eval_time: 76m,
    exp_samples: [{value: 1}]}
  - {expr: 'sum by (alertname, rule) (ALERTS{alertname!="SloBudgetBurn"})', eval_time: 50m,
    exp_samples: [
      {labels: '{alertname="SloRule", rule="slow"}', value: 1},
      {labels: '{alertname="SloRule", rule="full"}', value: 1}]}
  - {expr: 'sum by (alertname, rule) (ALERTS{alertname!="SloBudgetBurn"})', eval_time: 2h,
    exp_samples: [
      {labels: '{alertname="SloNoData"}', value: 1},
      {labels: '{alertname="SloRule", rule="silent"}', value: 1},
      {labels: '{alertname="SloRule", rule="slow"}', value: 1},
      {labels: '{alertname="SloRule", rule="full"}', value: 1}]}
"""


# Characters beyond the Basic Multilingual Plane, and names and labels that nearly collide.
UNUSUAL = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat, labels: {team-a: x}}
spec:
  service: 'support 🚀 "𝔸\\'
  indicator: {metric: ttft, select: {model: 'm🚀'}}
  objectives: [{target: 0.9, value: 0.5}]
  timeWindow: [{duration: 2d, isRolling: true}]
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat-sloth}
spec:
  service: support
  indicator: {metric: ttft}
  objectives: [{target: 0.9, value: 0.5}]
  timeWindow: [{duration: 2d, isRolling: true}]
---
apiVersion: evenkeel/v1
kind: Rule
metadata: {name: slow}
spec:
  select: {model: 'm🚀'}
  threshold: {measure: ttft_p95_s, op: gt, value: 0.8, over: 10m, minRequests: 5}
"""


def test_promtool_accepts_any_character_and_a_name_that_ends_as_a_groups(tmp_path: Path) -> None:
    slos, rules = tmp_path / "slos.yaml", tmp_path / "rules.yml"
    slos.write_text(UNUSUAL)
    file = read_slo_file(slos)
    rules.write_text(prometheus_rules(file.slos, None, file.rules))
    result = subprocess.run(
        [find_promtool(), "check", "rules", str(rules)], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_labels_that_prometheus_could_not_tell_apart_are_refused(tmp_path: Path) -> None:
    slos = tmp_path / "slos.yaml"
    slos.write_text(UNUSUAL.replace("{team-a: x}", "{team-a: x, team.a: y}"))
    expected = "labels 'team-a' and 'team.a' are both 'team_a' in Prometheus; rename one"
    with pytest.raises(ConfigurationError, match=expected):
        prometheus_rules(read_slo_file(slos).slos)


GROUPED = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat.v2}
spec:
  service: support
  indicator: {metric: ttft, groupBy: [tenant, route]}
  objectives: [{target: 0.9, value: 0.5}]
  timeWindow: [{duration: 2d, isRolling: true}]
  alerting: {noData: 30m, minBad: 3, confidence: 0.95}
"""
# Half of one group's requests are bad; the other's are good, and end after an hour.
GROUPS = """\
  - {series: 'evenkeel_slo_events_total{slo="chat.v2/acme,/v1/chat"}', values: '0+20x600'}
  - {series: 'evenkeel_slo_bad_events_total{slo="chat.v2/acme,/v1/chat"}', values: '0+20x600'}
  - {series: 'evenkeel_slo_events_total{slo="chat.v2/globex,mail"}', values: '0+20x60 1200x600'}
  - {series: 'evenkeel_slo_bad_events_total{slo="chat.v2/globex,mail"}', values: '0x600'}
  - {series: 'evenkeel_slo_events_total{slo="chatxv2/other,mail"}', values: '0+20x600'}
  - {series: 'evenkeel_slo_bad_events_total{slo="chatxv2/other,mail"}', values: '0+20x600'}
"""
GROUPS_EXPECTED = """\
  promql_expr_test:
  - {expr: 'sum by (alertname, slo_group, tenant, route) (ALERTS{severity="page"})',
    eval_time: 59m, exp_samples: [{labels: '{alertname="SloBudgetBurn", slo_group="chat.v2",
      tenant="acme", route="/v1/chat"}', value: 1}]}
  - {expr: 'sum by (alertname, slo) (ALERTS{alertname="SloNoData"})', eval_time: 2h,
    exp_samples: [{labels: '{alertname="SloNoData", slo="chat.v2/globex,mail"}', value: 1}]}
"""


def test_prometheus_judges_each_group_for_itself(tmp_path: Path) -> None:
    slos, rules, test = (tmp_path / name for name in ("slos.yaml", "rules.yml", "test.yml"))
    slos.write_text(GROUPED)
    rules.write_text(prometheus_rules(read_slo_file(slos).slos))
    test.write_text(
        f"rule_files: [{rules}]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n"
        f"  input_series:\n{GROUPS}{GROUPS_EXPECTED}"
    )
    result = subprocess.run(
        [find_promtool(), "test", "rules", str(test)], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_prometheus_judges_rules_and_missing_data_and_has_what_sloths_dashboards_read(
    tmp_path: Path,
) -> None:
    slos, rules, test = (tmp_path / name for name in ("slos.yaml", "rules.yml", "test.yml"))
    slos.write_text(FILE)
    file = read_slo_file(slos)
    text = prometheus_rules(file.slos, None, file.rules)
    assert text.splitlines()[:2] == [
        "# rule jump is not exported: level changes cannot be expressed in PromQL",
        "# rule theirs is not exported: vLLM's metrics have no label for tenant",
    ]
    assert (
        "# rule slow reads vllm:time_to_first_token_seconds_bucket,"
        " vllm:time_to_first_token_seconds_count: in Prometheus it never holds for another engine"
        " (evenkeel evaluates it for every engine)"
    ) in text.splitlines()
    rules.write_text(text)
    test.write_text(
        f"rule_files: [{rules}]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n"
        f"  input_series:\n{SERIES.replace('ttft_', TTFT)}{EXPECTED}"
    )
    result = subprocess.run(
        [find_promtool(), "test", "rules", str(test)], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr


ODD = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat, displayName: 'a {{ title', labels: LABELS}
spec:
  indicator: {metric: availability}
  objectives: [{target: 0.9}]
  timeWindow: [{duration: 30d, isRolling: true}]
---
apiVersion: evenkeel/v1
kind: Rule
metadata: {name: slow, displayName: 'a {{ title', labels: LABELS}
spec: {threshold: {measure: ttft_p95_s, op: gt, value: 2, over: 5m}}
"""
ODD_LABELS = {
    "dashes": "{team-name: x}",
    "Kubernetes'": "{app.kubernetes.io/name: x}",
    "reserved": "{__name__: x}",
    "digits and umlauts": "{1größe: x}",
    "a template": "{team: '{{ x }}'}",
}


@pytest.mark.parametrize("labels", ODD_LABELS.values(), ids=ODD_LABELS)
def test_promtool_accepts_labels_and_titles_that_are_none_of_prometheus(
    tmp_path: Path, labels: str
) -> None:
    """It would refuse the whole file, and with it every alert of every SLO."""
    path, rules = tmp_path / "slos.yaml", tmp_path / "rules.yml"
    path.write_text(ODD.replace("LABELS", labels))
    file = read_slo_file(path)
    rules.write_text(prometheus_rules(file.slos, rules=file.rules))
    command = [find_promtool(), "check", "rules", str(rules)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
