"""What `evenkeel slo check` says of a file."""

from pathlib import Path

import pytest

from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel_collector.commands.slo_text import check_text
from tests.fixtures.slo_files import slo_file

FILE = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat}
spec:
  indicator: {all: {ttft: 0.5, tpot: 0.1}, select: {model: support}}
  objectives: [{target: 0.99}]
  timeWindow: [{duration: 28d, isRolling: true}]
  alerting: {for: 2m, keepFiringFor: 10m, minBad: 5, confidence: 0.95, noData: never}
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: alive}
spec:
  indicator: {metric: availability}
  objectives: [{target: 0.99}]
  timeWindow: [{duration: 30d, isRolling: true}]
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: both}
spec:
  indicator: {composite: [{slo: chat, weight: 2}, {slo: alive}]}
  objectives: [{target: 0.99}]
  timeWindow: [{duration: 30d, isRolling: true}]
---
apiVersion: evenkeel/v1
kind: Rule
metadata: {name: slow}
spec:
  select: {tenant: acme}
  threshold: {measure: ttft_p95_s, op: gt, value: 0.8, over: 10m}
---
apiVersion: evenkeel/v1
kind: Rule
metadata: {name: jump}
spec:
  severity: page
  anomaly: {measure: e2e_p50_s, over: 2h, minEffect: 0.2}
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
  gauge: {metric: used, per: {metric: all}, op: gt, value: 0.9, over: 5m}
"""


def test_every_slo_and_rule_says_when_it_is_good_or_fires(tmp_path: Path) -> None:
    text = check_text(slo_file(tmp_path, FILE))
    chat, alive, both, *_ = text.split("\n\n")
    assert "  good: ttft <= 0.5 s and tpot <= 0.1 s; for model=support; error bad" in chat
    assert "A factor below 1 fires even though the budget would last" in chat
    assert "  fires when both windows of a row burn for 2m; resolves 10m after they stop" in chat
    assert "; needs at least 5 bad events, and for a page 95% confidence\n" in chat
    assert "  no alert if there are no events\n" in chat
    assert (
        "  fires when both windows of a row burn; resolves at once; needs at least 1 bad" in alive
    )
    assert "  fires SloNoData without events for 6h\n" in alive
    assert "A factor below 1" not in alive
    assert "  good: weight 2: ttft <= 0.5 s and tpot <= 0.1 s; for model=support" in both
    assert "  good: weight 1: availability; for all requests" in both
    assert (
        "rule slow: ticket when ttft_p95_s is above 0.8 over 10m for tenant=acme, with 20" in text
    )
    assert "rule jump: page when e2e_p50_s moves up by 0.2 of its level within 1h" in text
    assert "rule silent: ticket when no request ended for 15m" in text
    assert "rule full: ticket when used / all is above 0.9 over 5m" in text
    assert (
        "valid: 3 SLOs and 4 rules, and 9 default rules on anomalies; evaluated every 5s; "
        "receivers: none"
    ) in text


def test_a_file_of_rules_alone_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("---".join(FILE.split("---")[3:]))
    assert "valid: 0 SLOs and 4 rules" in check_text(read_slo_file(path))


ALERTING = """\
apiVersion: evenkeel/v1
kind: Alerting
spec:
  interval: 5s
  inhibit:
    - {source: page, target: ticket}
    - {source_matchers: [team="a"], target_matchers: ['team=~"b|c"'], equal: [model]}
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: short}
spec:
  indicator: {metric: ttft}
  objectives: [{target: 0.9, op: lt, value: 0.5}]
  timeWindow: [{duration: 30m, isRolling: true}]
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: sprint}
spec:
  indicator: {metric: ttft}
  objectives: [{target: 0.9999999, op: lte, value: 0.5}]
  timeWindow:
    - duration: 2w
      isRolling: false
      calendar: {timeZone: UTC, startTime: "2026-01-07 10:00"}
"""


def test_what_the_evaluation_does_is_said_as_it_is(tmp_path: Path) -> None:
    short, sprint, severities, by_labels, _ = check_text(slo_file(tmp_path, ALERTING)).split("\n\n")
    assert "good: ttft < 0.5 s;" in short
    assert "Windows shorter than the evaluation interval (5s) are only sampled" in short
    assert sprint.startswith("sprint: 99.99999% of events good")
    assert "good: ttft <= 0.5 s;" in sprint
    assert "the current 2 weeks in UTC, counted from 2026-01-07 10:00:00" in sprint
    assert "interval" not in sprint
    assert severities == (
        'while an alert with severity="page" fires, those with severity="ticket" and the same slo'
        " are withheld"
    )
    assert by_labels.endswith('fires, those with team=~"b|c" and the same model are withheld')


def test_a_calendar_budget_is_over_its_calendar_period(tmp_path: Path) -> None:
    path = tmp_path / "slos.yaml"
    month = "{duration: 1M, isRolling: false, calendar: {timeZone: Europe/Berlin}}"
    path.write_text(FILE.split("---")[0].replace("{duration: 28d, isRolling: true}", month))
    text = check_text(read_slo_file(path))
    assert " of events good over a calendar month\n" in text
    assert "the budget belongs to the current month in Europe/Berlin\n" in text


@pytest.mark.parametrize(
    ("silence", "scale", "said"),
    [("", "", "30m"), (", silence: 5m", "", "5m"), ("", "alerting: {scale: 1/10}", "3m")],
)
def test_when_a_session_is_over_is_said(
    silence: str, scale: str, said: str, tmp_path: Path
) -> None:
    text = check_text(slo_file(tmp_path, SESSIONS.format(silence=silence, scale=scale)))
    assert f"\n  a session counts once it is over: after {said} of silence\n" in text


SESSIONS = """\
apiVersion: openslo/v1
kind: SLO
metadata: {{name: tasks}}
spec:
  indicator: {{metric: session_success{silence}}}
  objectives: [{{target: 0.9}}]
  timeWindow: [{{duration: 30d, isRolling: true}}]
  {scale}
"""


def test_a_pair_that_no_error_ratio_can_exceed_never_fires(tmp_path: Path) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text(slo_file_text("0.7"), encoding="utf-8")
    text = check_text(read_slo_file(path))
    assert "432%" not in text and "never: not even 100% errors" in text
    assert text.count("  never\n") == 2


def slo_file_text(target: str) -> str:
    return f"""\
apiVersion: openslo/v1
kind: SLO
metadata: {{name: liked}}
spec:
  indicator: {{metric: feedback}}
  objectives: [{{target: {target}}}]
  timeWindow: [{{duration: 30d, isRolling: true}}]
"""
