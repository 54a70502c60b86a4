"""Files of OpenSLO, Sloth and Pyrra: what is read of them, and what is kept and said."""

from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.slo.calendar import Calendar, CalendarUnit
from evenkeel.slo.model import SloFile
from evenkeel_collector.slo.formats.importing import imported_file
from tests.fixtures.slo_files import slo_file

HEAD = "apiVersion: openslo/v1\nkind: SLO\nmetadata: {name: chat}\nspec:\n"
OURS = HEAD + "  indicator: {metric: ttft}\n"
ROLLING = "  timeWindow: [{duration: 30d, isRolling: true}]\n"


def read(tmp_path: Path, text: str) -> SloFile:
    return slo_file(tmp_path, text)


def imported(tmp_path: Path, text: str) -> tuple[SloFile, tuple[str, ...]]:
    path = tmp_path / "theirs.yaml"
    path.write_text(text)
    written, notes, num_foreign = imported_file(path)
    file = read(tmp_path, written)
    assert len(file.foreign) == num_foreign
    return file, notes


def test_several_objectives_are_several_slos(tmp_path: Path) -> None:
    text = OURS + ROLLING
    text += (
        "  objectives: [{op: lte, value: 1, targetPercent: 99.5}, {op: lt, value: 2, target: 0.9}]"
    )
    first, second = read(tmp_path, text).slos
    assert (first.name, second.name) == ("chat-1", "chat-2")
    assert first.target == Fraction("0.995")
    assert first.indicator.threshold_s == 1.0
    assert second.indicator.threshold_s is not None and 1.99 < second.indicator.threshold_s < 2


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("{value: 1, targetPercent: 100}", "targetPercent is 100, expected a percentage"),
        ("{value: 1, target: 0.9, targetPercent: 99}", "target and targetPercent differ"),
        ("{op: eq, value: 1, target: 0.9}", "op is 'eq', expected lte or lt or gte or gt"),
    ],
)
def test_a_wrong_objective_names_its_line(tmp_path: Path, objective: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"SLO 'chat': {message}.*slos\.yaml:7"):
        read(tmp_path, f"{OURS}{ROLLING}  objectives: [{objective}]")


def test_a_duration_that_is_good_above_its_value_is_not_evaluated(tmp_path: Path) -> None:
    file = read(tmp_path, f"{OURS}{ROLLING}  objectives: [{{op: gte, value: 1, target: 0.9}}]")
    assert file.slos == () and "op gte counts slow requests" in file.foreign[0].reason


def test_documents_in_a_list_with_label_lists_and_policies(tmp_path: Path) -> None:
    text = """
- apiVersion: openslo/v1
  kind: AlertPolicy
  metadata: {name: page}
  spec: {alertWhenBreaching: true}
- apiVersion: openslo/v1
  kind: SLO
  metadata:
    name: Chat_start.v2
    labels: {team: [a, b]}
    annotations: {owner: ann}
  spec:
    service: chat
    indicator: {metric: availability}
    timeWindow: [{duration: 1w, isRolling: true}]
    budgetingMethod: Occurrences
    objectives: [{target: 0.99, op: gte}]
    alertPolicies: [page]
"""
    file = read(tmp_path, text)
    (slo,) = file.slos
    assert (slo.name, slo.labels["team"]) == ("Chat_start.v2", "a,b")
    assert slo.kept == {"metadata.annotations": {"owner": "ann"}, "spec.alertPolicies": ["page"]}
    assert len(file.kept) == 1
    assert any("alertPolicies is preserved but ignored" in note for note in file.notes)


def test_v1alpha_is_read(tmp_path: Path) -> None:
    text = """
apiVersion: openslo/v1alpha
kind: SLO
metadata: {name: old}
spec:
  budgetingMethod: Occurrences
  objectives:
    - target: 0.99
      ratioMetrics:
        good: {source: SOURCE, queryType: promql, query: "{metric: availability}"}
        total: {source: SOURCE, queryType: promql, query: "{metric: availability}"}
  timeWindows: [{count: 28, unit: Day, isRolling: true}]
"""
    file = read(tmp_path, text.replace("SOURCE", "prometheus"))
    assert file.slos == () and "'prometheus', which evenkeel cannot query" in file.notes[0]
    (slo,) = read(tmp_path, text.replace("SOURCE", "evenkeel")).slos
    assert slo.period_s == 28 * 86400


def test_a_calendar_period_begins_with_its_start(tmp_path: Path) -> None:
    window = (
        "  timeWindow: [{duration: 1w, isRolling: false, calendar: "
        "{startTime: 2022-01-01 12:00:00, timeZone: America/New_York}}]\n"
    )
    (slo,) = read(tmp_path, f"{OURS}{window}  objectives: [{{value: 1, target: 0.9}}]").slos
    assert slo.calendar is not None
    # 2022-01-01 was a Saturday; New York is four hours behind in summer.
    friday = datetime(2026, 6, 5, 10, tzinfo=UTC)
    begin_ns = slo.calendar.start_ns(int(friday.timestamp()) * 10**9)
    assert datetime.fromtimestamp(begin_ns / 1e9, UTC) == datetime(2026, 5, 30, 16, tzinfo=UTC)


@pytest.mark.parametrize(
    ("unit", "start", "now", "begin"),
    [
        (CalendarUnit.MONTH, "2026-01-31 12:00", "2026-02-28 11:59", "2026-01-31 12:00"),
        (CalendarUnit.MONTH, "2026-01-31 12:00", "2026-02-28 12:00", "2026-02-28 12:00"),
        (CalendarUnit.MONTH, "2026-01-31 12:00", "2026-04-01 00:00", "2026-03-31 12:00"),
        (CalendarUnit.DAY, "2026-01-10 06:00", "2026-01-03 05:00", "2026-01-02 06:00"),
        (CalendarUnit.YEAR, "2024-02-29 00:00", "2026-02-27 23:00", "2025-02-28 00:00"),
        (CalendarUnit.QUARTER, "2025-11-15 00:00", "2026-02-14 00:00", "2025-11-15 00:00"),
    ],
)
def test_periods_from_a_start(unit: CalendarUnit, start: str, now: str, begin: str) -> None:
    calendar = Calendar(unit, ZoneInfo("UTC"), 1, datetime.fromisoformat(start))
    now_ns = int(datetime.fromisoformat(now + "Z").timestamp()) * 10**9
    expected_ns = int(datetime.fromisoformat(begin + "Z").timestamp()) * 10**9
    assert calendar.start_ns(now_ns) == expected_ns


def test_values_that_aliases_multiply_are_bounded(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for i in range(1, 10):
        lines.append(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]")
    with pytest.raises(ConfigurationError, match="more than 100000 values"):
        read(tmp_path, "\n".join(lines))


SLOTH = """
version: prometheus/v1
service: shop
labels: {owner: web}
slos:
  - name: availability
    objective: 99.9
    sli:
      events: {error_query: 'errors[{{.window}}]', total_query: 'all[{{.window}}]'}
    alerting: {page_alert: {disable: true}}
  - name: ratio
    objective: 95
    sli: {raw: {error_ratio_query: 'x'}}
    alerting: {}
"""


def test_sloth_is_imported_and_said_not_to_be_evaluated(tmp_path: Path) -> None:
    file, notes = imported(tmp_path, SLOTH)
    assert [f.name for f in file.foreign] == ["shop-availability", "shop-ratio"]
    assert all("Prometheus query is preserved" in note for note in notes) and len(notes) == 2
    kept = str(file.foreign[0].document)
    assert "errors[{{.window}}]" in kept and "disable" in kept and "0.999" in kept


def test_sloth_for_kubernetes_is_imported(tmp_path: Path) -> None:
    body = SLOTH.split("\n", 2)[2].replace("error_query", "errorQuery")
    body = body.replace("total_query", "totalQuery").replace("error_ratio_query", "errorRatioQuery")
    spec = "".join(f"  {line}\n" for line in body.splitlines())
    head = "apiVersion: sloth.slok.dev/v1\nkind: PrometheusServiceLevel\nmetadata: {name: x}\n"
    file, _ = imported(tmp_path, f"{head}spec:\n{spec}")
    assert len(file.foreign) == 2


PYRRA = """
apiVersion: pyrra.dev/v1alpha1
kind: ServiceLevelObjective
metadata: {name: start, namespace: llm, labels: {pyrra.dev/team: chat}}
spec:
  target: "99"
  window: 2w
  indicator:
    latency:
      success: {metric: 'HISTOGRAM_bucket{model_name="m",le="0.5"}'}
      total: {metric: 'HISTOGRAM_count{model_name="m"}'}
"""


def test_a_latency_over_a_histogram_of_vllm_becomes_ours(tmp_path: Path) -> None:
    text = PYRRA.replace("HISTOGRAM", "vllm:time_to_first_token_seconds")
    file, notes = imported(tmp_path, text)
    (slo,) = file.slos
    assert notes == () and file.foreign == ()
    assert (slo.indicator.metric, slo.indicator.threshold_s) == ("ttft", 0.5)
    assert (slo.indicator.select, slo.labels["team"]) == ({"model": "m"}, "chat")
    assert (slo.target, slo.period_s) == (Fraction("0.99"), Fraction(14 * 86400))


def test_any_other_pyrra_indicator_is_kept(tmp_path: Path) -> None:
    file, notes = imported(tmp_path, PYRRA.replace("HISTOGRAM", "http_request_seconds"))
    assert file.slos == () and len(file.foreign) == len(notes) == 1


def test_a_file_of_another_tool_names_the_import(tmp_path: Path) -> None:
    for text in (SLOTH, PYRRA):
        with pytest.raises(ConfigurationError, match=r"evenkeel slo import .*slos\.yaml"):
            read(tmp_path, text)


def test_a_deep_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nested too deeply.*slos\.yaml:1"):
        read(tmp_path, "a: " + "[" * 200 + "]" * 200)


def test_a_file_of_two_tools_loses_no_slo(tmp_path: Path) -> None:
    ours = f"{OURS}{ROLLING}  objectives: [{{value: 1, target: 0.9}}]\n"
    listed = "- " + PYRRA.replace("\n", "\n  ") + "\n- " + ours.replace("\n", "\n  ") + "\n"
    for text in (f"{PYRRA}---\n{ours}", f"{ours}---\n{PYRRA}", listed):
        with pytest.raises(ConfigurationError, match=r"theirs\.yaml:\d+") as raised:
            imported(tmp_path, text)
        assert "one file per tool" in str(raised.value)


def test_names_that_become_alike_are_told_apart(tmp_path: Path) -> None:
    """Such as one name in two namespaces, or two that differ in a character we do not have."""
    second = PYRRA.replace("kind:", "# in another namespace\nkind:")
    file, notes = imported(tmp_path, f"{PYRRA}---\n{second}---\n{PYRRA}")
    names = [foreign.name for foreign in file.foreign]
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3"]
    assert any(f"is now '{names[0]}-3'" in note for note in notes)
