"""What an error-budget policy does by what is spent, and how it is written."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.prompts.freeze import Freeze, check_not_frozen, read_freezes, write_freezes
from evenkeel.slo.budget_policy import BudgetStep
from evenkeel.slo.burn_rates import Counts, Severity, budget_left_ratio
from evenkeel.slo.calendar import Calendar, CalendarUnit
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.model import Slo
from evenkeel.slo.series import SloStatus
from evenkeel_collector.alerts.state import Delays
from evenkeel_collector.commands.slo_text import check_text
from evenkeel_collector.slo.budget_steps import (
    budget_conditions,
    budget_keys,
    budget_labels,
    promotion_freezes,
)
from tests.fixtures.slo_files import slo_file

FILE = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat}
spec:
  indicator: {metric: availability, select: {prompt_name: support}}
  objectives: [{target: 0.9}]
  timeWindow: [{duration: 30d, isRolling: true}]
  budgetPolicy:
    - {spent: 1, alert: page, freeze: prompts}
    - {spent: 0.5, alert: ticket}
    - {spent: 0.9, alert: ticket, labels: {budget: low}}
"""
S = 10**9


@pytest.fixture
def slo(tmp_path: Path) -> Slo:
    return slo_file(tmp_path, FILE).slos[0]


def verdict(bad: float, total: float = 1000.0) -> SloStatus:
    counts = Counts(total, bad)
    left = budget_left_ratio(counts, Fraction("0.9"))
    return SloStatus(counts, counts.sli, left, ())


def test_steps_are_read_in_the_order_of_what_is_spent(slo: Slo) -> None:
    assert slo.budget_policy == (
        BudgetStep(Fraction("0.5"), Severity.TICKET),
        BudgetStep(Fraction("0.9"), Severity.TICKET, {"budget": "low"}),
        BudgetStep(Fraction(1), Severity.PAGE, {}, True),
    )
    assert budget_keys(slo) == {
        ("chat/budget-50", "ticket"), ("chat/budget-90", "ticket"), ("chat/budget-100", "page"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "holding", "labels"),
    [
        (0, [False, False, False], {}),
        (50, [True, False, False], {}),
        (95, [True, True, False], {"budget": "low"}),
        (100, [True, True, True], {"budget": "low"}),
        (400, [True, True, True], {"budget": "low"}),
    ],
)
def test_a_step_holds_from_its_share_on(
    slo: Slo, bad: float, holding: list[bool], labels: dict[str, str]
) -> None:
    found = list(budget_conditions(slo, verdict(bad)))
    assert [condition.holds for condition in found] == holding
    assert budget_labels(slo, verdict(bad)) == labels
    assert [c.labels["budget_spent"] for c in found] == ["50 %", "90 %", "100 %"]
    assert "prompt promotion is frozen" in found[2].describe()["description"]
    assert found[0].describe()["summary"] == "chat: 50% of the error budget is spent"


def test_an_alert_names_the_period_of_its_budget(slo: Slo) -> None:
    monthly = replace(slo, calendar=Calendar(CalendarUnit.MONTH, ZoneInfo("Europe/Berlin")))
    texts = [next(budget_conditions(each, verdict(50))).describe() for each in (slo, monthly)]
    assert [text["description"] for text in texts] == [
        "Of the budget of the last 30d, 50% or more is spent.",
        "Of the budget of this month, 50% or more is spent.",
    ]


def test_without_events_nothing_changes(slo: Slo) -> None:
    nothing = verdict(0, 0)
    assert {c.holds for c in budget_conditions(slo, nothing)} == {None}
    before = [Freeze("chat", "support", 7)]
    assert promotion_freezes([slo], {"chat": nothing}, before, 9 * S) == before
    assert promotion_freezes([slo], {}, before, 9 * S) == before
    assert promotion_freezes([slo], {}, [], 9 * S) == []


def test_a_freeze_lasts_while_the_budget_is_spent(slo: Slo) -> None:
    first = promotion_freezes([slo], {"chat": verdict(120)}, [], 7 * S)
    assert first == [Freeze("chat", "support", 7)]
    assert promotion_freezes([slo], {"chat": verdict(130)}, first, 9 * S) == first
    assert promotion_freezes([slo], {"chat": verdict(99)}, first, 9 * S) == []
    # An SLO that is gone, or has no such step any more, freezes nothing.
    assert promotion_freezes([], {}, first, 9 * S) == []


def test_a_freeze_lasts_while_the_groups_are_unknown(slo: Slo) -> None:
    """As after a restart, until they are read from the store."""
    before = [Freeze("chat/acme", "support", 7), Freeze("gone/acme", "", 7)]
    assert promotion_freezes([], {}, before, 9 * S, unknown={"chat"}) == before[:1]
    acme = replace(slo, name="chat/acme")
    assert promotion_freezes([acme], {"chat/acme": verdict(99)}, before, 9 * S) == []


def test_a_freeze_is_of_each_prompt_of_a_list(tmp_path: Path) -> None:
    slos = slo_file(
        tmp_path, FILE.replace("prompt_name: support", "prompt_name: [support, sales]")
    ).slos
    first = promotion_freezes(slos, {"chat": verdict(120)}, [], 7 * S)
    assert first == [Freeze("chat", "support", 7), Freeze("chat", "sales", 7)]
    assert promotion_freezes(slos, {"chat": verdict(130)}, first, 9 * S) == first
    assert promotion_freezes(slos, {"chat": verdict(0, 0)}, first, 9 * S) == first


@pytest.mark.parametrize("select", ['{matches: "sup.*"}', "{not: sales}", "{in: [a], not: [b]}"])
def test_a_freeze_needs_prompts_by_name(tmp_path: Path, select: str) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text(FILE.replace("prompt_name: support", f"prompt_name: {select}"))
    with pytest.raises(ConfigurationError, match=r"freeze: prompts.*prompt_name.*slos.yaml:9"):
        read_slo_file(path)


def test_a_freeze_is_of_one_prompt_or_of_all(tmp_path: Path) -> None:
    assert read_freezes(tmp_path) == []
    check_not_frozen(tmp_path, "support")
    write_freezes(tmp_path, [Freeze("chat", "support", 0)])
    check_not_frozen(tmp_path, "other")
    with pytest.raises(ConfigurationError, match="frozen: SLO 'chat' has spent its error budget"):
        check_not_frozen(tmp_path, "support")
    write_freezes(tmp_path, [Freeze("all", "", 0)])
    with pytest.raises(ConfigurationError, match="1970-01-01 00:00 UTC"):
        check_not_frozen(tmp_path, "other")
    write_freezes(tmp_path, [])
    write_freezes(tmp_path, [])
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "frozen.json").write_text("{")
    with pytest.raises(ConfigurationError, match="is damaged"):
        check_not_frozen(tmp_path, "support")


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("[]", "budgetPolicy has 0 steps, expected 1 to 10"),
        ("[{spent: 0.5}]", "needs one of alert, labels and freeze"),
        ("[{spent: 0, alert: page}]", "spent is 0, expected a share of the budget such as 0.5"),
        ("[{spent: 50, alert: page}]", "spent is 50, expected a share of the budget such as 0.5"),
        ("[{spent: .nan, alert: page}]", "spent is"),
        ("[{spent: 50%, alert: page}]", "spent is '50%'"),
        ("[{spent: 0.5, alert: page}, {spent: 0.50, alert: ticket}]", "two steps with the same"),
        ("[{spent: 0.5, freeze: all}]", "freeze is 'all', expected prompts"),
        ("[{spent: 0.5, labels: {slo: x}}]", "label 'slo' is set by evenkeel"),
        ("[{spent: 0.5, alert: page, webhook: x}]", "webhook is not a key of"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(tmp_path: Path, policy: str, message: str) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text(FILE[: FILE.index("  budgetPolicy")] + f"  budgetPolicy: {policy}\n")
    with pytest.raises(ConfigurationError) as caught:
        read_slo_file(path)
    assert message in str(caught.value)


def test_the_check_says_what_each_step_does(tmp_path: Path) -> None:
    text = check_text(slo_file(tmp_path, FILE))
    assert "  at 50% of the budget spent: fires SloBudgetSpent (ticket)\n" in text
    assert (
        "  at 90% of the budget spent: fires SloBudgetSpent (ticket), labels its alerts bud" in text
    )
    assert (
        "  at 100% of the budget spent: fires SloBudgetSpent (page), freezes prompt promotion"
        in text
    )


@pytest.mark.parametrize("tenths", range(1, 11))
def test_a_share_that_is_spent_exactly_is_spent(slo: Slo, tenths: int) -> None:
    """In floats, a tenth of the budget is a little less than 1 - 0.9."""
    step = BudgetStep(Fraction(tenths, 10), Severity.TICKET)
    of_step = replace(slo, budget_policy=(step,))
    assert [c.holds for c in budget_conditions(of_step, verdict(10.0 * tenths))] == [True]
    assert [c.holds for c in budget_conditions(of_step, verdict(10.0 * tenths - 0.01))] == [False]


def test_a_budget_alert_fires_on_as_long_as_the_slos_others(slo: Slo) -> None:
    """A budget that hovers at a share would otherwise end and fire with every request."""
    slow = replace(slo, keep_firing_s=Fraction(300), scale=Fraction(1, 60))
    delays = {c.delays for c in budget_conditions(slow, verdict(50))}
    assert delays == {Delays(0, 5 * S)}
