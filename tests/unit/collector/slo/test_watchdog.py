"""The evaluation is watched, and an SLO that fails is an alert of its own."""

from fractions import Fraction
from pathlib import Path

import pytest

from evenkeel.slo.model import Indicator, Metric, Slo, SloFile
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.slo.failure import failure_conditions
from evenkeel_collector.slo.watchdog import STALLED, Heartbeat, look
from tests.fixtures.manual_clock import ManualClock

S = 10**9


def test_three_intervals_without_a_finished_cycle_are_a_stall() -> None:
    clock = ManualClock()
    heartbeat = Heartbeat(lambda: 5.0, clock)
    heartbeat.beat()
    clock.now_s += 14.9
    assert heartbeat.why_not() is None
    clock.now_s += 0.1
    assert heartbeat.why_not() == "no slo evaluation cycle completed for 15 s"
    heartbeat.beat()
    assert heartbeat.why_not() is None


def test_a_cold_start_may_take_longer_but_not_for_ever() -> None:
    clock = ManualClock()
    heartbeat = Heartbeat(lambda: 5.0, clock)
    with heartbeat.long_read():
        clock.now_s += 200
        assert heartbeat.why_not() is None
        clock.now_s += 100
        assert heartbeat.why_not() is not None
    assert heartbeat.why_not() is None, "it ended well"
    with pytest.raises(OSError), heartbeat.long_read():
        clock.now_s += 60
        raise OSError("gone")
    assert heartbeat.why_not() is not None


def test_a_stall_is_one_alert_that_ends_once_cycles_finish_again(book: AlertBook) -> None:
    clock = ManualClock()
    heartbeat = Heartbeat(lambda: 5.0, clock)
    engine = AlertEngine(book, None, owns=lambda slo: slo == STALLED)

    def state() -> list[str]:
        look(engine, heartbeat, [], int(clock.now_s * S))
        return [alert.life.state.value for alert in book.alerts()]

    assert state() == []
    clock.now_s += 20
    assert state() == ["firing"]
    # A restart alone is not the end of it.
    engine = AlertEngine(book, None, owns=lambda slo: slo == STALLED)
    heartbeat = Heartbeat(lambda: 5.0, clock)
    assert state() == ["firing"]
    # Cycles of 16 s are each too late: still the same alert.
    for _ in range(4):
        heartbeat.beat()
        assert state() == ["firing"]
        clock.now_s += 14
        assert state() == ["firing"]
        clock.now_s += 2
        assert state() == ["firing"]
    heartbeat.beat()
    clock.now_s += 10
    heartbeat.beat()
    assert state() == ["firing"]
    clock.now_s += 10
    assert state() == ["resolved"]
    # The engine of the evaluation does not take it for one of its own.
    other = AlertEngine(book, None, owns=lambda slo: slo != STALLED)
    assert not other.alerts


def slo_file(num: int) -> SloFile:
    indicator = Indicator(Metric.TTFT, 0.5, {})
    slos = tuple(
        Slo(f"slo-{i}", f"SLO {i}", indicator, Fraction(99, 100), Fraction(60), ())
        for i in range(num)
    )
    return SloFile(Path("slos.yaml"), slos)


def fired(book: AlertBook, failures: dict[str, str], seconds: range, is_gone: bool) -> list[str]:
    engine = AlertEngine(book)
    for second in seconds:
        alerting = {a.slo for a in engine.alerts.values() if a.life.state in ("pending", "firing")}
        conditions = failure_conditions(slo_file(200), failures, alerting, is_gone)
        engine.observe(conditions, [], second * S)
    return [alert.slo for alert in book.alerts() if alert.life.state == "firing"]


def test_one_failure_fires_after_three_cycles_and_ends(book: AlertBook) -> None:
    why = {"slo-3": "odd data"}
    assert fired(book, why, range(0, 15, 5), False) == []
    assert fired(book, why, range(15, 20, 5), False) == ["slo-3/evaluation"]
    (alert,) = book.alerts()
    assert alert.details.labels["alertname"] == "SloEvaluationFailed"
    assert alert.details.labels["slo"] == "slo-3"
    assert alert.details.annotations["description"].startswith("odd data.")
    assert fired(book, {}, range(20, 40, 5), False) == []


def test_a_blip_fires_nothing(book: AlertBook) -> None:
    assert fired(book, {"slo-3": "odd"}, range(0, 10, 5), False) == []
    assert fired(book, {}, range(10, 40, 5), False) == []


def test_many_failures_are_one_alert_and_a_store_that_is_gone_is_none(book: AlertBook) -> None:
    everything = {f"slo-{i}": "gone" for i in range(200)}
    assert fired(book, everything, range(0, 60, 5), True) == []
    assert fired(book, everything, range(60, 120, 5), False) == ["evenkeel:failures"]
    assert fired(book, {}, range(120, 180, 5), False) == []
