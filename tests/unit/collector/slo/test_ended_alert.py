"""What every kind of alert says once it has ended: its texts are of the past."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest

from evenkeel.slo.budget_policy import BudgetStep
from evenkeel.slo.burn_rates import DEFAULT_RULES, Counts, Severity, alert_windows
from evenkeel.slo.ended_alert import past_annotations
from evenkeel.slo.model import Indicator, Metric, Slo
from evenkeel.slo.series import SloStatus, WindowBurn
from evenkeel_collector.alerts import delivery_health
from evenkeel_collector.alerts.outbox import FailingReceiver
from evenkeel_collector.slo import absence, budget_steps, evidence, failure, watchdog

SLO = Slo(
    "chat", "Chats start fast", Indicator(Metric.TTFT, 0.5), Fraction(9, 10),
    Fraction(30 * 86_400), DEFAULT_RULES,
)  # fmt: skip
SPEND = replace(SLO, indicator=Indicator(Metric.COST, None, budget=40.0))
BURN = WindowBurn(alert_windows(SLO.period_s)[0], 20.3, 31.0, True, bad_long=2.0)
STATUS = SloStatus(Counts(100.0, 26.0), 0.74, -1.6, (BURN,))
STEP = BudgetStep(Fraction(1, 2), Severity.TICKET, {}, True)


@pytest.mark.parametrize(
    ("annotations", "summary"),
    [
        pytest.param(
            evidence.describe(SLO, STATUS, BURN, 0, None),
            "Chats start fast: the error budget burned 20.3 times too fast",
            id="a burn rate",
        ),
        pytest.param(
            evidence.describe(SPEND, STATUS, BURN, 0, None, "EUR"),
            "Chats start fast: 2.00 EUR spent in the last 1h, of 40.00 EUR per 30d",
            id="money spent too fast",
        ),
        pytest.param(
            budget_steps._describe(SLO, STEP, STATUS, ""),
            "Chats start fast: 50% of the error budget was spent",
            id="a budget spent",
        ),
        pytest.param(
            budget_steps._describe(SPEND, STEP, STATUS, "EUR"),
            "Chats start fast: 26.00 EUR was spent in the last 30d, 50% or more of 40.00 EUR per "
            "30d",
            id="money spent",
        ),
        pytest.param(absence._describe(SLO), "Chats start fast: no data for 6h", id="no data"),
        pytest.param(
            failure._describe("chat", "the store refused it"),
            "chat: could not be evaluated",
            id="an evaluation that fails",
        ),
        pytest.param(
            failure._describe_all({"chat": "it is wrong", "code": "it is wrong"}),
            "2 SLOs and rules could not be evaluated",
            id="many evaluations that fail",
        ),
        pytest.param(
            watchdog._describe("the last evaluation was 3 min ago"),
            "SLOs were not evaluated",
            id="no evaluation",
        ),
        pytest.param(
            delivery_health._describe("hook", FailingReceiver(3, 0, "answered 401")),
            "receiver hook did not accept notifications: answered 401",
            id="no delivery",
        ),
    ],
)
def test_what_an_alert_says_once_it_has_ended(annotations: Mapping[str, str], summary: str) -> None:
    said = past_annotations(annotations)
    assert said["summary"] == summary
    present = r"\b(is|are|burns|cannot|does|stay|hangs)\b"
    # Whether an objective was met stays unknown.
    description = said["description"].replace("met is unknown", "").replace("it is wrong", "")
    assert not re.search(present, description)
    others = annotations.keys() - {"summary", "description"}
    assert {name: said[name] for name in others} == {name: annotations[name] for name in others}
