"""What is written as OpenSLO is read again as it was."""

from collections.abc import Sequence
from dataclasses import MISSING, Field, fields, replace
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenkeel.slo.burn_rates import Severity, WindowRule
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.model import Indicator, Metric, Slo, Treatment
from evenkeel_collector.slo.formats.openslo import openslo_documents, openslo_file
from tests.checkout import ROOT
from tests.fixtures.slo_files import slo_file

MORE = """---
apiVersion: openslo/v1
kind: SLO
metadata: {name: sliced}
spec:
  indicator: {all: {ttft: 0.5, stall: 1}, select: {tenant: "7"}}
  budgetingMethod: Timeslices
  objectives: [{target: 0.99, timeSliceTarget: 0.95, timeSliceWindow: 5m}]
  timeWindow: [{duration: 1M, isRolling: false, calendar: {timeZone: Europe/Berlin}}]
"""
SELECTED = """---
apiVersion: openslo/v1
kind: SLO
metadata: {name: selected}
spec:
  indicator:
    metric: availability
    select:
      tenant: [acme, "it's, odd"]
      model: {not: [a, b], matches: "gpt-.*|llama"}
      route: {notMatches: "/health.*"}
      slo_class: [chat]
    httpStatus: {bad: [5xx, 404], measured: 400-403, excluded: 503}
    groupBy: [prompt]
    maxGroups: 7
  objectives: [{target: 0.99}]
  timeWindow: [{duration: 30d, isRolling: true}]
"""
COMPOSITE = """---
apiVersion: openslo/v1
kind: SLO
metadata: {name: both}
spec:
  indicator: {composite: [{slo: support-ttft}, {slo: support-availability}], groupBy: [tenant]}
  objectives: [{target: 0.9}]
  timeWindow: [{duration: 30d, isRolling: true}]
"""


def test_openslo_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text((ROOT / "slos.yaml").read_text() + MORE + SELECTED)
    slos = read_slo_file(path).slos
    path.write_text(openslo_documents(slos))
    read = read_slo_file(path).slos
    assert [in_full(slo) for slo in read] == [in_full(slo) for slo in slos]


def in_full(slo: Slo) -> Slo:
    """Return the SLO as written in full: a calendar's usual start is a start."""
    if slo.calendar is None or slo.calendar.start is not None:
        return slo
    start = datetime.fromisoformat("2026-01-01")
    return replace(slo, calendar=replace(slo.calendar, start=start))


def test_a_composite_is_written_with_its_members(tmp_path: Path) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text((ROOT / "slos.yaml").read_text() + COMPOSITE)
    composite = read_slo_file(path).slos[-1]
    path.write_text(openslo_documents([composite]))
    assert read_slo_file(path).slos == (composite,)


WINDOW = "timeWindow: [{duration: 30d, isRolling: true}]"
EVERY = f"""---
apiVersion: openslo/v1
kind: SLO
metadata: {{name: over, displayName: Over, labels: {{team: chat}}, annotations: {{why: asked}}}}
spec:
  description: Sessions that are done.
  service: chat
  indicator:
    {{metric: session_e2e, silence: 10m, error: excluded, aborted: excluded, shed: excluded}}
  objectives: [{{target: 0.99, value: 300}}]
  timeWindow:
    - duration: 2w
      isRolling: false
      calendar: {{timeZone: Europe/Berlin, startTime: "2026-01-05 12:00:00"}}
  alerting: {{for: 1m, keepFiringFor: 2m, minBad: 4, confidence: 0.95, noData: 3h, windows: [
    {{severity: page, budget: 0.1, long: 1h, short: 5m}}]}}
  budgetPolicy:
    [{{spent: 0.5, alert: ticket, labels: {{tier: low}}}}, {{spent: 1, freeze: prompts}}]
---
apiVersion: openslo/v1
kind: SLO
metadata: {{name: turns}}
spec:
  indicator: {{metric: session_turns, silence: 90s, groupBy: [tenant]}}
  objectives: [{{target: 0.99, value: 7}}]
  {WINDOW}
  alerting: {{scale: 1/2}}
---
apiVersion: openslo/v1
kind: SLO
metadata: {{name: mixed}}
spec:
  indicator:
    composite:
      - {{slo: turns, weight: 1/3}}
      - value: 0.5
        indicator: {{metric: ttft, select: {{tenant: acme}}, httpStatus: {{bad: 404}}}}
      - {{indicator: {{all: {{ttft: 1, e2e: 9}}, select: {{model: {{not: [a, b]}}}}}}}}
  objectives: [{{target: 0.9}}]
  {WINDOW}
---
apiVersion: openslo/v1
kind: SLO
metadata: {{name: spent}}
spec:
  indicator: {{metric: cost, select: {{tenant: acme}}}}
  objectives: [{{value: 100}}]
  {WINDOW}
"""


def test_every_field_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text(EVERY + MORE)
    first = [in_full(slo) for slo in read_slo_file(path).slos]
    indicators = [one for slo in first for one in (slo.indicator, *every_member(slo))]
    assert never_set(Slo, first) == ["group"], "EVERY sets each field of a definition"
    assert never_set(Indicator, indicators) == [], "EVERY sets each field of an indicator"
    path.write_text(openslo_documents(first))
    assert list(read_slo_file(path).slos) == first


def every_member(slo: Slo) -> list[Indicator]:
    return [member.indicator for member in slo.indicator.members]


def never_set(kind: type[Slo] | type[Indicator], values: Sequence[object]) -> list[str]:
    """Return the fields that have their default in all of these values."""
    return [
        field.name
        for field in fields(kind)
        if {repr(getattr(value, field.name)) for value in values} <= {repr(default_of(field))}
    ]


def default_of(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


RULE = """---
apiVersion: evenkeel/v1
kind: Rule
metadata: {name: slow}
spec: {threshold: {measure: ttft_p95_s, op: gt, value: 2, over: 5m}}
"""


def test_a_file_is_written_with_receivers_rules_and_what_is_not_evaluated(tmp_path: Path) -> None:
    path = tmp_path / "slos.yaml"
    receivers = "receivers: [{name: a, url: 'https://alerts.example.com/hook'}]"
    text = (ROOT / "slos.yaml").read_text().replace("receivers: []", receivers)
    path.write_text(text + RULE + FOREIGN)
    first = read_slo_file(path)
    path.write_text(openslo_file(first))
    again = read_slo_file(path)
    assert (again.slos, again.receivers, again.rules) == (first.slos, first.receivers, first.rules)
    assert again.inhibitions == first.inhibitions
    assert [f.document for f in again.foreign] == [f.document for f in first.foreign]
    assert len(again.kept) == len(first.kept) == 1
    kinds = [line for line in path.read_text().splitlines() if line.startswith("apiVersion")]
    assert set(kinds) == {"apiVersion: openslo/v1"}


FOREIGN = """---
apiVersion: openslo/v1
kind: DataSource
metadata: {name: prom}
spec: {type: Prometheus, connectionDetails: {url: 'http://prometheus.example.com'}}
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: theirs, labels: {team: [a, b]}}
spec:
  service: shop
  indicator: {spec: {thresholdMetric: {metricSource: {metricSourceRef: prom, spec: {query: up}}}}}
  timeWindow: [{duration: 2w, isRolling: true}]
  budgetingMethod: Occurrences
  objectives: [{op: gt, value: 1, targetPercent: 99.5}]
  alertPolicies: [page]
"""

_ratios = st.fractions(min_value=Fraction(1, 1000), max_value=Fraction(999, 1000)).filter(
    lambda ratio: ratio.denominator < 10**6
)
_seconds = st.integers(1, 10**7).map(lambda ms: Fraction(ms * 60, 1000)).filter(lambda s: s >= 10)


@st.composite
def slos(draw: st.DrawFn) -> Slo:
    metric = draw(st.sampled_from([Metric.TTFT, Metric.E2E, Metric.AVAILABILITY]))
    limit = None
    if metric is not Metric.AVAILABILITY:
        limit = draw(st.floats(min_value=1e-3, max_value=1e5))
    texts = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1)
    indicator = Indicator(
        metric,
        limit,
        draw(st.dictionaries(st.sampled_from(["tenant", "model", "route"]), texts)),
        *(draw(st.sampled_from(Treatment)) for _ in range(3)),
    )
    short_s = draw(_seconds)
    rules = tuple(
        WindowRule(severity, draw(_ratios), short_s * draw(st.integers(1, 20)), short_s)
        for severity in draw(st.lists(st.sampled_from(Severity), min_size=1, max_size=3))
    )
    return Slo(
        name="drawn",
        title=draw(texts),
        indicator=indicator,
        target=draw(_ratios),
        period_s=Fraction(draw(st.integers(1, 400)) * 86400),
        rules=rules,
        scale=draw(st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(1, 3)])),
        pending_s=draw(st.sampled_from([Fraction(0), Fraction(90), Fraction(1, 8)])),
        keep_firing_s=draw(st.sampled_from([Fraction(0), Fraction(300)])),
        min_bad=draw(st.integers(1, 1000)),
        confidence=draw(st.sampled_from([None, Fraction("0.95"), Fraction(2, 3)])),
        no_data_s=draw(st.sampled_from([None, Fraction(0), Fraction(3600)])),
        labels=draw(st.dictionaries(st.sampled_from(["team", "service"]), texts)),
    )


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(slo=slos())
def test_any_slo_is_read_as_it_was_written(tmp_path: Path, slo: Slo) -> None:
    assert slo_file(tmp_path, openslo_documents([slo])).slos == (slo,)


ODD_TEXTS = [
    "1.10",
    "007",
    "1e3",
    "1_000",
    "0x10",
    "yes",
    "Off",
    "true",
    "~",
    "2026-01-01",
    "10:30",
]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_what_a_rule_selects_is_written_as_it_was(tmp_path: Path, text: str) -> None:
    """YAML has other ways to write 1.10 and yes, and a prompt's version is a text."""
    path = tmp_path / "slos.yaml"
    labels = f"{{name: slow, labels: {{version: {text}}}}}"
    select = f"select: {{prompt_version: {text}, tenant: {text}}}, threshold"
    path.write_text(RULE.replace("{name: slow}", labels).replace("threshold", select))
    first = read_slo_file(path)
    assert first.rules[0].select["prompt_version"] == text
    path.write_text(openslo_file(first))
    assert read_slo_file(path).rules == first.rules


@pytest.mark.parametrize("target", ["0.99999999999999999999", "0.00000000000000000001", "2/3"])
def test_a_target_that_no_float_has_is_written_in_full(tmp_path: Path, target: str) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text(MORE.replace("target: 0.99,", f"target: {target},"))
    slos = read_slo_file(path).slos
    path.write_text(openslo_documents(slos))
    assert read_slo_file(path).slos[0].target == Fraction(target)
