"""How alerts are held against marked incidents."""

from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.slo.backtest import AlertSpan
from evenkeel.slo.burn_rates import Severity
from evenkeel_collector.slo.backtest_score import Incident, read_incidents, score_alerts

PAGE, TICKET = Severity.PAGE, Severity.TICKET
OUTAGE = Incident("outage", 100, 130)


def alert(from_minute: int, to_minute: int, severity: Severity = PAGE) -> AlertSpan:
    return AlertSpan("chat", severity, from_minute, to_minute)


@pytest.mark.parametrize(
    ("alerts", "detect_s", "reset_s"),
    [
        pytest.param([alert(102, 140)], 180, 660, id="after three minutes, and eleven beyond"),
        pytest.param([alert(90, 110)], 0, -1140, id="it held already, and ended before"),
        pytest.param([alert(100, 101), alert(120, 129)], 60, 0, id="the first and the last"),
        pytest.param([alert(130, 140)], None, None, id="the end is not included"),
        pytest.param([alert(90, 99)], None, None, id="before is not within"),
        pytest.param([alert(100, 129, TICKET)], None, None, id="a ticket is no page"),
    ],
)
def test_when_an_incident_was_found(
    alerts: list[AlertSpan], detect_s: int | None, reset_s: int | None
) -> None:
    (detection,) = score_alerts(alerts, [OUTAGE], [PAGE]).detections
    assert (detection.detect_s, detection.reset_s) == (detect_s, reset_s)


def test_precision_is_of_alerts_and_recall_of_incidents() -> None:
    alerts = [alert(100, 105), alert(110, 112), alert(500, 501)]
    score = score_alerts(alerts, [OUTAGE, Incident("unseen", 900, 950)], [PAGE, TICKET])
    assert score.precision == {PAGE: pytest.approx(2 / 3), TICKET: None}
    assert score.recall == {PAGE: 0.5, TICKET: 0.0}
    assert score_alerts([], [], [PAGE]).recall == {PAGE: None}


def test_incidents_are_read(tmp_path: Path) -> None:
    path = tmp_path / "incidents.csv"
    path.write_text(
        "from,until,name\n1970-01-01T01:40Z,1970-01-01T02:10Z,outage\n"
        "1970-01-01T03:40+02:00,1970-01-01T02:10,\n"
    )
    assert read_incidents(path) == [OUTAGE, Incident("", 100, 130)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("from,until\n", "columns are from,until"),
        ("from,until,name\nyesterday,today,x\n", "from is 'yesterday', expected a time"),
        ("from,until,name\n2026-01-01T10:00,2026-01-01T10:00,x\n", "until must be after"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "incidents.csv"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        read_incidents(path)
