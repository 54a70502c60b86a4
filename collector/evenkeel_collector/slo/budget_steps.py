"""Applies error-budget policies: alerts, labels and frozen promotions, by the share spent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from evenkeel.prompts.freeze import Freeze
from evenkeel.slo.budget_policy import BudgetStep
from evenkeel.slo.matchers import silence_command
from evenkeel.slo.model import Slo
from evenkeel.slo.series import SloStatus
from evenkeel_collector.alerts.state import Condition, Delays
from evenkeel_collector.slo.money import budget_text, current_period, money
from evenkeel_collector.slo.percent import exact_percent

ALERT_NAME = "SloBudgetSpent"
_SECOND_NS = 10**9
# Floating point: a budget of which exactly a tenth is spent has slightly less than 1 - 0.9 left.
_ROUNDING = 1e-9


def budget_keys(slo: Slo) -> set[tuple[str, str]]:
    """Return the keys of the policy's alerts."""
    return {
        (_subject(slo, step), step.severity.value) for step in slo.budget_policy if step.severity
    }


def budget_conditions(slo: Slo, verdict: SloStatus, currency: str = "") -> Iterator[Condition]:
    """Yield the condition of each notifying step: whether that much of the budget is spent.

    `currency` is that of the bill.
    """
    for step in slo.budget_policy:
        if step.severity is None:
            continue
        yield Condition(
            slo=_subject(slo, step),
            severity=step.severity.value,
            holds=_is_reached(step, verdict) if verdict.has_data else None,
            delays=Delays(0, int(slo.keep_firing_s * slo.scale * _SECOND_NS)),
            labels={
                **slo.indicator.select,
                **slo.labels,
                "alertname": ALERT_NAME,
                "slo": slo.name,
                "severity": step.severity.value,
                # Labels identify an alert, and silences match them: the space stays.
                "budget_spent": exact_percent(step.spent_ratio).replace("%", " %"),
            },
            figures={"sli": verdict.sli, "budget_left_ratio": verdict.budget_left_ratio},
            describe=partial(_describe, slo, step, verdict, currency),
        )


def _describe(slo: Slo, step: BudgetStep, verdict: SloStatus, currency: str) -> Mapping[str, str]:
    spent = exact_percent(step.spent_ratio)
    then = "; prompt promotion is frozen until it drops" if step.freezes_promotions else ""
    summary = f"{spent} of the error budget is spent"
    description = f"Of the budget of {slo.current_period}, {spent} or more is spent{then}."
    if slo.indicator.budget is not None:
        amount = f"{money(verdict.counts.bad, currency)} is spent {current_period(slo)}"
        summary = f"{amount}, {spent} or more of {budget_text(slo, currency)}"
        description = f"{summary}{then}."
    return {
        "summary": f"{slo.title}: {summary}",
        "description": description,
        "silence": silence_command(slo.name),
    }


def budget_labels(slo: Slo, verdict: SloStatus) -> dict[str, str]:
    """Return the labels to add to the SLO's alerts; those of later steps win."""
    labels: dict[str, str] = {}
    for step in _reached(slo, verdict):
        labels |= step.labels
    return labels


def promotion_freezes(
    slos: Sequence[Slo],
    verdicts: Mapping[str, SloStatus],
    before: Sequence[Freeze],
    now_ns: int,
    unknown: Collection[str] = (),
) -> list[Freeze]:
    """Return the prompts whose promotion is frozen, and by which SLOs.

    An SLO that could not be judged, or has no events, keeps its previous freezes. So do the groups
    of `unknown` definitions, which could not be read.
    """
    held: dict[str, list[Freeze]] = {}
    for freeze in before:
        held.setdefault(freeze.slo, []).append(freeze)
    found = [freeze for freeze in before if freeze.slo.partition("/")[0] in unknown]
    for slo in slos:
        if not any(step.freezes_promotions for step in slo.budget_policy):
            continue
        verdict, kept = verdicts.get(slo.name), held.get(slo.name, [])
        if verdict is None or not verdict.has_data:
            found += kept
        elif any(step.freezes_promotions for step in _reached(slo, verdict)):
            since_s = {freeze.prompt: freeze.since_s for freeze in kept}
            found += [
                Freeze(slo.name, prompt, since_s.get(prompt, now_ns // _SECOND_NS))
                for prompt in slo.indicator.prompts or ("",)
            ]
    return found


def _reached(slo: Slo, verdict: SloStatus) -> list[BudgetStep]:
    return [step for step in slo.budget_policy if _is_reached(step, verdict)]


def _is_reached(step: BudgetStep, verdict: SloStatus) -> bool:
    left = verdict.budget_left_ratio
    return left is not None and 1 - left >= float(step.spent_ratio) - _ROUNDING


def _subject(slo: Slo, step: BudgetStep) -> str:
    return f"{slo.name}/budget-{exact_percent(step.spent_ratio).removesuffix('%')}"
