"""Raise an alert when an SLO or rule cannot be evaluated while others can."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from evenkeel.slo.burn_rates import Severity
from evenkeel.slo.matchers import silence_command
from evenkeel.slo.model import SloFile
from evenkeel_collector.alerts.state import Condition, Delays

ALERT_NAME = "SloEvaluationFailed"
# More failures than this have a common cause and share one alert. Names in a file have no colon.
_MOST_ALONE = 10
_ALL = "evenkeel:failures"
_NUM_CYCLES = 3
_LISTED = 10


def failure_keys(file: SloFile) -> set[tuple[str, str]]:
    """Return the keys of a file's alerts."""
    names = [slo.name for slo in file.slos] + [rule.name for rule in file.all_rules]
    return {(failure_key(name), Severity.TICKET.value) for name in names} | {
        (_ALL, Severity.TICKET.value)
    }


def failure_conditions(
    file: SloFile,
    failures: Mapping[str, str],
    alerting: Collection[str],
    is_store_gone: bool,
) -> list[Condition]:
    """Return the conditions that SLOs and rules are failing.

    One alert each, after three cycles, or a single alert if more than ten fail. While the store is
    unavailable there are none: the alert on the evaluation itself covers that.

    Args:
        file: The current SLO file.
        failures: The reason of each failure, by name.
        alerting: The keys of pending and firing alerts.
        is_store_gone: Whether the store is unavailable.
    """
    is_many = len(failures) > _MOST_ALONE
    wait_ns = int(_NUM_CYCLES * float(file.interval_s) * 1e9)
    delays = Delays(wait_ns, wait_ns)
    labels = {slo.name: {**slo.indicator.select, **slo.labels} for slo in file.slos}
    labels |= {rule.name: {**rule.select, **rule.labels} for rule in file.all_rules}
    conditions = []
    for name, own in labels.items():
        reason = failures.get(name)
        if reason is None and failure_key(name) not in alerting:
            continue
        is_left = is_store_gone or (reason is not None and is_many)
        describe = partial(_describe, name, reason or "")
        holds = None if is_left else reason is not None
        conditions.append(_condition(failure_key(name), name, holds, delays, own, describe))
    if is_many or _ALL in alerting:
        holds = None if is_store_gone else is_many
        describe = partial(_describe_all, failures)
        conditions.append(_condition(_ALL, _ALL, holds, delays, {}, describe))
    return conditions


def failure_key(name: str) -> str:
    """Return the name of the alert that something cannot be evaluated."""
    return f"{name}/evaluation"


def _condition(
    key: str,
    name: str,
    holds: bool | None,
    delays: Delays,
    labels: Mapping[str, str],
    describe: partial[dict[str, str]],
) -> Condition:
    severity = Severity.TICKET.value
    about = {"alertname": ALERT_NAME, "slo": name, "severity": severity}
    return Condition(key, severity, holds, delays, {**labels, **about}, {}, describe)


def _describe(name: str, reason: str) -> dict[str, str]:
    return {
        "summary": f"{name}: cannot be evaluated",
        "description": (
            f"{reason}. Whether the objective is met is unknown; alerts on {name} stay as they "
            "were. Other SLOs are still evaluated."
        ),
        "silence": silence_command(name),
    }


def _describe_all(failures: Mapping[str, str]) -> dict[str, str]:
    names = sorted(failures)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    reason = failures[names[0]] if names else ""
    return {
        "summary": f"{len(names)} SLOs and rules cannot be evaluated",
        "description": (
            f"{', '.join(names[:_LISTED])}{more} cannot be evaluated; {names[0] if names else ''}: "
            f"{reason}. Their alerts stay as they were."
        ),
        "silence": silence_command(_ALL),
    }
