"""Scores the alerts of a replay against incidents labelled by people."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evenkeel.errors import ConfigurationError, first_line
from evenkeel.slo.backtest import AlertSpan
from evenkeel.slo.burn_rates import Severity
from evenkeel.times import parse_time_ns


@dataclass(frozen=True, slots=True)
class Incident:
    """A time that should have alerted: unix minutes [from_minute, until_minute)."""

    name: str
    from_minute: int
    until_minute: int

    def overlaps(self, alert: AlertSpan) -> bool:
        """Return whether the alert was active at any time during the incident."""
        return alert.from_minute < self.until_minute and self.from_minute <= alert.to_minute


@dataclass(frozen=True, slots=True)
class Detection:
    """How alerts of one severity detected one incident.

    Attributes:
        incident: The incident.
        severity: page or ticket.
        detect_s: From its start to the end of the first minute that alerted; 0 if an alert was
            already active; None if none overlaps it.
        reset_s: From its end to that of the last alert that overlaps it; below 0 if the alert
            ended first.
    """

    incident: Incident
    severity: Severity
    detect_s: int | None
    reset_s: int | None


@dataclass(frozen=True, slots=True)
class BacktestScore:
    """How well alerts match incidents.

    Attributes:
        detections: One per incident and severity.
        precision: Per severity, alerts that overlap an incident / alerts; None without alerts.
        recall: Per severity, incidents that an alert overlaps / incidents; None without any.
    """

    detections: tuple[Detection, ...]
    precision: dict[Severity, float | None]
    recall: dict[Severity, float | None]


def score_alerts(
    alerts: Sequence[AlertSpan], incidents: Sequence[Incident], severities: Iterable[Severity]
) -> BacktestScore:
    """Return how well one SLO's alerts match the incidents."""
    detections = []
    precision: dict[Severity, float | None] = {}
    recall: dict[Severity, float | None] = {}
    for severity in severities:
        of_severity = [alert for alert in alerts if alert.severity is severity]
        found = [_detect(incident, severity, of_severity) for incident in incidents]
        num_right = sum(any(i.overlaps(alert) for i in incidents) for alert in of_severity)
        num_found = sum(detection.detect_s is not None for detection in found)
        precision[severity] = num_right / len(of_severity) if of_severity else None
        recall[severity] = num_found / len(incidents) if incidents else None
        detections += found
    return BacktestScore(tuple(detections), precision, recall)


def _detect(incident: Incident, severity: Severity, alerts: Sequence[AlertSpan]) -> Detection:
    seen = [alert for alert in alerts if incident.overlaps(alert)]
    if not seen:
        return Detection(incident, severity, None, None)
    first = min(alert.from_minute for alert in seen)
    last = max(alert.to_minute for alert in seen)
    detect = 0 if first < incident.from_minute else first + 1 - incident.from_minute
    return Detection(incident, severity, detect * 60, (last + 1 - incident.until_minute) * 60)


def read_incidents(path: Path) -> list[Incident]:
    """Read a CSV file with the columns from and until (ISO 8601, UTC by default) and name.

    Raises:
        ConfigurationError: On a file that cannot be read, other columns, a value that is not a
            time, or an end that is not after the start.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if sorted(rows.fieldnames or ()) != ["from", "name", "until"]:
                raise ConfigurationError(
                    f"{path}: columns are {','.join(rows.fieldnames or ()) or 'missing'}, "
                    "expected from,until,name"
                )
            return [_read_incident(row, f"{path}:{rows.line_num}") for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"{path} cannot be read: {first_line(error)}") from error


def _read_incident(row: dict[str, str | None], where: str) -> Incident:
    minutes = []
    for name in ("from", "until"):
        try:
            minutes.append(parse_time_ns(row[name] or "") // (60 * 10**9))
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{name} is {row[name]!r}, expected a time such as 2026-11-20T10:00Z ({where})"
            ) from error
    if minutes[1] <= minutes[0]:
        raise ConfigurationError(f"until must be after from ({where})")
    return Incident(row["name"] or "", minutes[0], minutes[1])
