"""The error-budget policy of an SLO: what happens once a share of its budget is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from evenkeel.slo.burn_rates import Severity
from evenkeel.slo.yaml_source import Value

# Set by evenkeel on every alert.
OWN_LABELS = ("alertname", "slo", "severity", "service")
_MAX_STEPS = 10


@dataclass(frozen=True, slots=True)
class BudgetStep:
    """A step of the policy, in effect once a share of the budget is spent.

    Attributes:
        spent_ratio: The share; above 1 the budget is overspent.
        severity: Severity of the alert `SloBudgetSpent`; None: no alert.
        labels: Added to every other alert of the SLO that fires meanwhile.
        freezes_promotions: Whether prompts may not be promoted meanwhile.
    """

    spent_ratio: Fraction
    severity: Severity | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    freezes_promotions: bool = False


def read_budget_policy(value: Value) -> tuple[BudgetStep, ...]:
    """Return the steps of `budgetPolicy`, smallest share first.

    Raises:
        ConfigurationError: On a step that does nothing, a repeated share, or anything unknown.
    """
    steps = value.each(_read_step)
    if not 1 <= len(steps) <= _MAX_STEPS:
        raise value.complaint(f"budgetPolicy has {len(steps)} steps, expected 1 to {_MAX_STEPS}")
    if len({step.spent_ratio for step in steps}) < len(steps):
        raise value.complaint("budgetPolicy has two steps with the same spent")
    return tuple(sorted(steps, key=lambda step: step.spent_ratio))


def _read_step(element: Value) -> BudgetStep:
    share = "a share of the budget such as 0.5, at most 10"
    with element.section() as section:
        step = BudgetStep(
            section.read("spent", Value.number, share, lambda spent: 0 < spent <= 10),
            section.read_or("alert", None, Value.choice, *Severity),
            section.read_or("labels", {}, read_labels),
            section.read_or("freeze", None, Value.choice, "prompts") is not None,
        )
    if step.severity is None and not step.labels and not step.freezes_promotions:
        raise element.complaint("a step of budgetPolicy needs one of alert, labels and freeze")
    return step


def read_labels(value: Value) -> dict[str, str]:
    """Return labels for alerts; several values become one comma-separated text.

    Raises:
        ConfigurationError: If evenkeel sets one itself.
    """
    found = {
        name: ",".join(label.texts()) if label.is_list else label.text()
        for name, label in value.by_key().items()
    }
    for name in OWN_LABELS:
        if name in found:
            raise value.complaint(f"label {name!r} is set by evenkeel")
    return found
