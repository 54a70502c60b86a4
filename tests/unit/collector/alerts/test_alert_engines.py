"""Two engines on one book: each leaves alone what is the other's."""

from fractions import Fraction

import pytest

from evenkeel.slo.burn_rates import Severity
from evenkeel.slo.file.routing import by_severity
from evenkeel.slo.receiver import Receiver
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.state import Condition, Delays

S = 10**9
NOW = 1_795_168_800 * S
PAGER = Receiver("on-call", "http://127.0.0.1:1/", repeat_s=Fraction(60))


def engines(book: AlertBook) -> tuple[AlertEngine, AlertEngine]:
    """Return the engine of the SLOs and the one that watches their evaluation."""
    return (
        AlertEngine(book, owns=lambda slo: slo != "watch"),
        AlertEngine(book, owns=lambda slo: slo == "watch"),
    )


def condition(slo: str, holds: bool = True, severity: str = "page") -> Condition:
    labels = {"alertname": "SloBudgetBurn", "slo": slo, "severity": severity}
    return Condition(slo, severity, holds, Delays(), labels, {}, dict)


def deliver(book: AlertBook, at_ns: int) -> None:
    for notification in book.due(at_ns):
        book.mark_delivered(notification.number, at_ns)


@pytest.mark.parametrize("holds", [True, False])
def test_repetitions_of_one_engine_are_not_withdrawn_by_the_other(
    book: AlertBook, holds: bool
) -> None:
    slos, watch = engines(book)
    slos.observe([condition("chat")], [PAGER], NOW)
    watch.observe([condition("watch")], [PAGER], NOW)
    watch.observe([condition("watch", holds)], [PAGER], NOW + S)
    while book.due(NOW + S):
        deliver(book, NOW + S)
    at_ns = NOW + 70 * S
    assert slos.repeat([PAGER], at_ns) == 1
    assert watch.repeat([PAGER], at_ns) == (1 if holds else 0)
    slos.repeat([PAGER], at_ns)
    assert len(book.due(at_ns)) == (2 if holds else 1)


def test_what_one_engine_withholds_is_not_forgotten_by_the_other(book: AlertBook) -> None:
    slos, watch = engines(book)
    slos.set_inhibitions([by_severity(Severity.PAGE, Severity.TICKET)])
    slos.observe([condition("chat", severity="ticket")], [PAGER], NOW)
    slos.observe([condition("chat"), condition("chat", severity="ticket")], [PAGER], NOW + S)
    slos.repeat([PAGER], NOW + S)
    ticket = slos.alerts["chat", "ticket"].alert_id
    assert book.withheld() == {ticket}
    watch.observe([condition("watch")], [PAGER], NOW + 2 * S)
    watch.repeat([PAGER], NOW + 2 * S)
    assert book.withheld() == {ticket}
    slos.observe(
        [condition("chat", False), condition("chat", False, "ticket")], [PAGER], NOW + 3 * S
    )
    slos.repeat([PAGER], NOW + 3 * S)
    assert book.withheld() == set()
