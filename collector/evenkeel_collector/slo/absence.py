"""Raise an alert when an SLO has no data, because then its objective cannot be judged."""

from __future__ import annotations

from functools import partial

from evenkeel.durations import format_duration
from evenkeel.slo.burn_rates import Severity
from evenkeel.slo.matchers import silence_command
from evenkeel.slo.model import Slo
from evenkeel_collector.alerts.state import Condition, Delays
from evenkeel_collector.slo.evidence import collect
from evenkeel_collector.slo.track import Track
from evenkeel_collector.slo.what_changed import what_changed

ALERT_NAME = "SloNoData"


def no_data_key(slo: Slo) -> tuple[str, str]:
    """Return the key of the alert."""
    return f"{slo.name}/no-data", Severity.TICKET.value


def no_data_condition(track: Track, now_ns: int) -> Condition:
    """Return the condition that an SLO has had no events for too long."""
    slo = track.slo
    name, severity = no_data_key(slo)
    return Condition(
        slo=name,
        severity=severity,
        holds=track.is_without_data(now_ns),
        delays=Delays(),
        labels={
            **slo.indicator.select,
            **slo.labels,
            "alertname": ALERT_NAME,
            "slo": slo.name,
            "severity": severity,
            "objective": slo.indicator.metric.value,
        },
        figures={},
        describe=partial(_describe, slo),
        gather=lambda store: collect(what_changed(slo, now_ns, store)),
    )


def _describe(slo: Slo) -> dict[str, str]:
    duration = format_duration(slo.scaled_no_data_s)
    where = slo.indicator.selection
    return {
        "summary": f"{slo.title}: no data for {duration}",
        "description": (
            f"No valid event ({where or 'any request'}) ended in the last {duration}. Whether the "
            "objective is met is unknown; alerts of this SLO stay as they were."
        ),
        "silence": silence_command(slo.name),
    }
