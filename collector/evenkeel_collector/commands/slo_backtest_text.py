"""Format a replay as text and JSON."""

from __future__ import annotations

from typing import Any

from evenkeel.durations import format_duration
from evenkeel.slo.backtest import AlertSpan, BacktestResult
from evenkeel.times import minute_text
from evenkeel_collector.slo.backtest_score import BacktestScore, Detection
from evenkeel_collector.slo.percent import percent


def alert_json(alert: AlertSpan) -> dict[str, Any]:
    """Return an alert as JSON; both of its minutes are inclusive."""
    return {
        "slo": alert.slo,
        "severity": alert.severity.value,
        "from_minute": alert.from_minute,
        "to_minute": alert.to_minute,
    }


def alert_text(alert: AlertSpan) -> str:
    """Return one line: severity, start, end and length in minutes."""
    return (
        f"{alert.severity.value:6}  {_minute(alert.from_minute)} to {_minute(alert.to_minute)}  "
        f"({alert.to_minute - alert.from_minute + 1} min)"
    )


def backtest_json(result: BacktestResult, score: BacktestScore | None = None) -> dict[str, Any]:
    """Return the replay as JSON; null where there is no data."""
    shown: dict[str, Any] = {
        "alerts": [alert_json(alert) for alert in result.alerts],
        "budget_left_ratio": result.budget_left_ratio,
        "sli": result.sli,
    }
    if score is None:
        return shown
    return shown | {
        "incidents": [
            {
                "name": detection.incident.name,
                "from_minute": detection.incident.from_minute,
                "until_minute": detection.incident.until_minute,
                "severity": detection.severity.value,
                "detect_s": detection.detect_s,
                "reset_s": detection.reset_s,
            }
            for detection in score.detections
        ],
        "precision": {severity.value: value for severity, value in score.precision.items()},
        "recall": {severity.value: value for severity, value in score.recall.items()},
    }


def backtest_text(result: BacktestResult, score: BacktestScore | None = None) -> str:
    """Return one line per alert, then SLI and budget, then the incidents."""
    lines = [alert_text(alert) for alert in result.alerts] or ["no alert"]
    left = result.budget_left_ratio
    budget = "no data" if left is None else f"{percent(left, 2)} left"
    lines.append(f"SLI {percent(result.sli, 4)}, error budget {budget}")
    if score is not None:
        lines += [_detection_text(detection) for detection in score.detections]
        lines += [
            f"{severity.value}: precision {_ratio(value, 'no alert')}, incidents found "
            f"{_ratio(score.recall[severity], 'none marked')}"
            for severity, value in score.precision.items()
        ]
    return "\n".join(lines)


def _detection_text(detection: Detection) -> str:
    incident = detection.incident
    head = f"incident {incident.name!r}, {_minute(incident.from_minute)}, {detection.severity}: "
    if detection.detect_s is None or detection.reset_s is None:
        return head + "not found"
    found = format_duration(detection.detect_s) if detection.detect_s else "0s"
    over = format_duration(abs(detection.reset_s)) if detection.reset_s else "0s"
    side = "before" if detection.reset_s < 0 else "after"
    return head + f"found after {found}, ended {over} {side} its end"


def _ratio(value: float | None, word: str) -> str:
    return word if value is None else percent(value, 1)


def _minute(minute: int) -> str:
    return minute_text(minute * 60 * 10**9)
