"""What happens when a share of an SLO's budget is spent: the steps of its error-budget policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from evenkeel.slo.arithmetic import Severity
from evenkeel.slo.yaml_source import Value

_MAX_STEPS = 10


@dataclass(frozen=True, slots=True)
class BudgetStep:
    """What is done from when on a share of the budget is spent.

    Attributes:
        spent_ratio: The share; above 1 the budget is overspent.
        severity: Of the alert `SloBudgetSpent`; None: nobody is told.
        labels: Go on every other alert of the SLO that fires meanwhile.
        freezes_promotions: Whether prompts may not be promoted meanwhile.
    """

    spent_ratio: Fraction
    severity: Severity | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    freezes_promotions: bool = False


def read_budget_policy(value: Value, own_labels: tuple[str, ...]) -> tuple[BudgetStep, ...]:
    """Return the steps of `budgetPolicy`, the least spent first.

    Args:
        value: The list.
        own_labels: Labels that evenkeel sets itself.

    Raises:
        ConfigurationError: On a step that does nothing, two of one share, or anything unknown.
    """
    steps = [_read_step(element, own_labels) for element in value.items()]
    if not 1 <= len(steps) <= _MAX_STEPS:
        raise value.complaint(f"budgetPolicy has {len(steps)} steps, expected 1 to {_MAX_STEPS}")
    if len({step.spent_ratio for step in steps}) < len(steps):
        raise value.complaint("budgetPolicy has two steps of the same spent")
    return tuple(sorted(steps, key=lambda step: step.spent_ratio))


def _read_step(element: Value, own_labels: tuple[str, ...]) -> BudgetStep:
    section = element.section()
    spent_value = section.required("spent")
    alert, labels_value, freeze = (section.optional(k) for k in ("alert", "labels", "freeze"))
    section.close()
    spent = spent_value.number("a share of the budget such as 0.5")
    if not 0 < spent <= 100:
        raise spent_value.error("a share of the budget such as 0.5")
    labels = {} if labels_value is None else labels_value.section().texts()
    for label in own_labels:
        if labels_value is not None and label in labels:
            raise labels_value.complaint(f"label {label!r} is set by evenkeel")
    if freeze is not None:
        freeze.choice("prompts")
    if alert is None and not labels and freeze is None:
        raise element.complaint("a step of budgetPolicy names one of alert, labels and freeze")
    severity = None if alert is None else Severity(alert.choice(*Severity))
    return BudgetStep(spent, severity, labels, freeze is not None)
