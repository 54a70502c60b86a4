"""Which anomaly rules a file leaves in force, and how its own are read."""

from fractions import Fraction
from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.slo.file.anomalies import default_anomalies
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.model import SloFile
from evenkeel.slo.rules import Gauge
from evenkeel.slo.spike_measures import SPIKE_MEASURES
from evenkeel.slo.spikes import Spike

RULE = """\
apiVersion: evenkeel/v1
kind: Rule
metadata: {name: NAME}
spec: SPEC
"""
ALERTING = "---\napiVersion: evenkeel/v1\nkind: Alerting\nspec: {anomalies: WORD}\n"
SPIKE = "{spike: {measure: input_tokens, over: 5m}}"


def read(tmp_path: Path, spec: str = SPIKE, name: str = "mine", anomalies: str = "") -> SloFile:
    path = tmp_path / "slos.yaml"
    text = RULE.replace("NAME", name).replace("SPEC", spec)
    path.write_text(text + (ALERTING.replace("WORD", anomalies) if anomalies else ""))
    return read_slo_file(path)


def test_every_measure_has_a_default_rule_that_says_what_would_help() -> None:
    rules = default_anomalies()
    tests = [rule.test for rule in rules]
    assert [t.measure for t in tests if isinstance(t, Spike)] == list(SPIKE_MEASURES)
    assert all(rule.helps and rule.has_many_alerts for rule in rules)
    assert [t.of.metric for t in tests if isinstance(t, Gauge)] == [
        "evenkeel_runtime_stalled_requests"
    ]


@pytest.mark.parametrize(
    ("anomalies", "num"),
    [("", 9), ("on", 9), ("off", 0), ("{off: [cut-answers, empty-answers]}", 7)],
)
def test_default_rules_can_be_turned_off(tmp_path: Path, anomalies: str, num: int) -> None:
    assert len(read(tmp_path, anomalies=anomalies).anomalies) == num


def test_a_rule_of_the_same_name_replaces_the_default(tmp_path: Path) -> None:
    found = read(tmp_path, name="input-tokens")
    assert [rule.name for rule in found.all_rules].count("input-tokens") == 1
    assert len(found.all_rules) == 9


def test_a_spike_is_read(tmp_path: Path) -> None:
    spec = "{select: {model: m}, spike: {measure: repeated_share, over: 10m, groupBy: [tenant], "
    spec += "minEffect: 0.1, minRequests: 50, above: 0.3, maxGroups: 20}}"
    (rule,) = read(tmp_path, spec).rules
    assert rule.test == Spike("repeated_share", Fraction(600), ("tenant",), 0.1, 50, 0.5, 0.3, 20)
    assert str(rule.test) == (
        "answers that repeat themselves of a tenant rise by 10 points above their own past within "
        "10m"
    )


@pytest.mark.parametrize(
    ("spike", "message"),
    [
        ("measure: input, over: 5m", "measure is 'input', expected input_tokens or"),
        ("measure: input_tokens, over: 2h", "over is '2h', expected 10s to 1h"),
        ("measure: input_tokens, over: 5m, minEffect: 0", "expected a relative increase from 0.1"),
        ("measure: cut_share, over: 5m, minEffect: 1", "expected an increase of the share from"),
        ("measure: cut_share, over: 5m, quantile: 0.9", "quantile is for tokens"),
        ("measure: cut_share, over: 5m, above: 0.5", "above is for repeated_share"),
        ("measure: repeated_share, over: 5m, above: 7", "above is 7, expected 0.05 to 1"),
        ("measure: input_tokens, over: 5m, quantile: 0.7", "quantile is 0.7, expected 0.5 or 0.9"),
        ("measure: input_tokens, over: 5m, minRequests: 9", "expected a whole number from 10"),
        ("measure: input_tokens, over: 5m, maxGroups: 0", "maxGroups is 0, expected 1 to 1000"),
        ("measure: input_tokens, over: 5m, groupBy: [user]", "groupBy[0] is 'user', expected"),
        ("measure: input_tokens, over: 5m, groupBy: [model]", "groupBy has model, which select"),
        ("measure: input_tokens, over: 5m, fast: yes", "fast is not a key of spike"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, spike: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=r"rule 'mine': .*slos\.yaml:\d\)") as caught:
        read(tmp_path, f"{{select: {{model: m}}, spike: {{{spike}}}}}")
    assert message in str(caught.value)


def test_an_unknown_default_rule_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="off is 'loops', expected input-tokens or"):
        read(tmp_path, anomalies="{off: loops}")
    with pytest.raises(ConfigurationError, match="anomalies is 'maybe', expected on or off"):
        read(tmp_path, anomalies="maybe")
