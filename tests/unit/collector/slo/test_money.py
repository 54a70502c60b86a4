"""Amounts in alerts on budgets in money."""

from pathlib import Path

import pytest

from evenkeel_collector.slo.money import budget_text, current_period, money
from tests.fixtures.slo_files import slo_file

FILE = """\
apiVersion: openslo/v1
kind: SLO
metadata: {{name: spend}}
spec:
  indicator: {{metric: cost, select: {{tenant: acme}}}}
  objectives: [{{value: 1200}}]
  timeWindow: [{window}]
"""


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0.0, "0.00 EUR"), (0.00421, "0.00421 EUR"), (4.2, "4.20 EUR"), (1234.5, "1,234.50 EUR")],
)
def test_an_amount(amount: float, text: str) -> None:
    assert money(amount, "EUR") == text
    assert money(amount, "") == text.removesuffix(" EUR")


@pytest.mark.parametrize(
    ("window", "budget", "period"),
    [
        ("{duration: 30d, isRolling: true}", "1,200.00 EUR per 30d", "in the last 30d"),
        ("{duration: 1M, calendar: {timeZone: UTC}}", "1,200.00 EUR per month", "this month"),
        (
            "{duration: 2w, calendar: {timeZone: UTC, startTime: 2026-01-05 12:00:00}}",
            "1,200.00 EUR per 2 weeks",
            "in these 2 weeks",
        ),
    ],
)
def test_a_budget_and_its_period(window: str, budget: str, period: str, tmp_path: Path) -> None:
    (slo,) = slo_file(tmp_path, FILE.format(window=window)).slos
    assert budget_text(slo, "EUR") == budget
    assert current_period(slo) == period
    assert slo.current_period == period.removeprefix("in ")
