"""What rules make of their measures, and how they are read."""

from fractions import Fraction
from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.slo.burn_rates import Severity
from evenkeel.slo.rules import Absence, Anomaly, Row, Rule, Threshold, judge_rule
from tests.fixtures.slo_files import slo_file

MINUTE = Fraction(60)


def rule(test: Threshold | Anomaly | Absence) -> Rule:
    return Rule("r", "r", Severity.TICKET, test)


ABOVE = Threshold("e2e_p99_s", "gt", 5.0, 15 * MINUTE)
BELOW = Threshold("prefix_hit_ratio", "lt", 0.6, 15 * MINUTE, min_requests=1)
JUMP: list[Row] = [
    {"bucket": float(i), "ttft_p50_s": (0.2 if i < 36 else 0.4) + 0.01 * (i % 3)} for i in range(60)
]
UP = Anomaly("ttft_p50_s", 60 * MINUTE, 30 * MINUTE, 0.2, "up")
DOWN = Anomaly("ttft_p50_s", 60 * MINUTE, 30 * MINUTE, 0.2, "down")
OLD = Anomaly("ttft_p50_s", 60 * MINUTE, 5 * MINUTE, 0.2, "up")
WEAK = Anomaly("ttft_p50_s", 60 * MINUTE, 30 * MINUTE, 1.5, "up")
CASES: list[tuple[str, Threshold | Anomaly | Absence, list[Row], bool | None]] = [
    ("above", ABOVE, [{"requests": 30.0, "e2e_p99_s": 5.1}], True),
    ("at the value is not above", ABOVE, [{"requests": 30.0, "e2e_p99_s": 5.0}], False),
    ("too few requests", ABOVE, [{"requests": 19.0, "e2e_p99_s": 9.0}], None),
    ("below", BELOW, [{"requests": 1.0, "prefix_hit_ratio": 0.5}], True),
    ("nothing measured", BELOW, [{"requests": 9.0, "prefix_hit_ratio": None}], None),
    ("no rows", BELOW, [], None),
    ("absent", Absence(MINUTE), [], True),
    ("not absent", Absence(MINUTE), [{"requests": 1.0}], False),
    ("a new level", UP, JUMP, True),
    ("in the other direction", DOWN, JUMP, False),
    ("too long ago", OLD, JUMP, False),
    ("too small an effect", WEAK, JUMP, False),
    ("no minutes", UP, [], None),
]


@pytest.mark.parametrize(
    ("test", "rows", "holds"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_whether_a_rule_holds(
    test: Threshold | Anomaly | Absence, rows: list[Row], holds: bool | None
) -> None:
    assert judge_rule(rule(test), rows).holds is holds


SLO = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat}
spec:
  indicator: {metric: availability}
  objectives: [{target: 0.9}]
  timeWindow: [{duration: 30d, isRolling: true}]
---
apiVersion: evenkeel/v1
kind: Rule
metadata: {name: slow-tail}
spec: SPEC
"""


def read(tmp_path: Path, spec: str) -> Rule:
    return slo_file(tmp_path, SLO.replace("SPEC", spec)).rules[0]


def test_rules_are_read(tmp_path: Path) -> None:
    threshold = "{measure: e2e_p99_s, op: gt, value: 5, over: 15m}"
    found = read(tmp_path, f"{{severity: page, for: 2m, threshold: {threshold}}}")
    assert (found.severity, found.pending_s, found.test) == (Severity.PAGE, 120, ABOVE)
    anomaly = "{measure: ttft_p50_s, over: 1h, minEffect: 0.2}"
    assert read(tmp_path, f"{{anomaly: {anomaly}}}").test == UP
    assert read(tmp_path, "{absence: {after: 1m}}").test == Absence(MINUTE)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{}", "give one of threshold, anomaly, spike, absence and gauge"),
        ("{absence: {after: 1m}, threshold: {}}", "give one of"),
        ("{threshold: {measure: x, op: gt, value: 5, over: 1m}}", "measure is 'x', expected"),
        (
            "{threshold: {measure: error_ratio, op: gt, value: 5, over: 5m}}",
            "value is 5, expected a ratio such as 0.05",
        ),
        ("{anomaly: {measure: requests, over: 5m, minEffect: 1}}", "over is '5m', expected 20m"),
    ],
)
def test_mistakes_name_the_rule(tmp_path: Path, spec: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=r"rule 'slow-tail': .*slos\.yaml:12\)") as caught:
        read(tmp_path, spec)
    assert message in str(caught.value)
