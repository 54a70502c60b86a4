"""Which SLOs cover more than the store keeps."""

from dataclasses import replace
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest

from evenkeel.slo.burn_rates import default_rules
from evenkeel.slo.calendar import Calendar, CalendarUnit
from evenkeel.slo.model import Grouping, Indicator, Member, Metric, Slo
from evenkeel_collector.slo.short_history import short_histories
from evenkeel_collector.store.retention import read_retention

MONTH = Fraction(30 * 86_400)
CHAT = Slo(
    "chat", "chat", Indicator(Metric.AVAILABILITY, None), Fraction(9, 10), MONTH,
    default_rules(MONTH),
)  # fmt: skip
ACME = Indicator(Metric.AVAILABILITY, None, {"tenant": "acme"})
THIS_MONTH = replace(CHAT, calendar=Calendar(CalendarUnit.MONTH, ZoneInfo("UTC")))

BOTH = (Member(ACME, Fraction(1)), Member(CHAT.indicator, Fraction(1)))


@pytest.mark.parametrize(
    ("slo", "retention", "expected"),
    [
        pytest.param(CHAT, "", None, id="forever"),
        pytest.param(CHAT, "spans=1d, requests_1m=1d", None, id="other tables"),
        pytest.param(CHAT, "requests=30d", None, id="as long"),
        pytest.param(CHAT, "requests_1h=1d", None, id="the rollup"),
        pytest.param(
            replace(CHAT, indicator=replace(CHAT.indicator, grouping=Grouping(("tenant",), 500))),
            "requests_1h=1d", "requests_1h for 1d", id="the rollup of groups"),
        pytest.param(CHAT, "requests=14d", "to 30d, but collector.retention keeps requests for 14d",
                     id="shorter"),
        pytest.param(THIS_MONTH, "requests=30d", "31d1h", id="a month of 31 days"),
        pytest.param(replace(CHAT, scale=Fraction(1, 60)), "requests=14d", None, id="scaled"),
        pytest.param(CHAT, "requests=90d, acme/requests=7d", "for 7d", id="some tenant's"),
        pytest.param(replace(CHAT, indicator=ACME), "requests=90d, acme/requests=7d", "for 7d",
                     id="this tenant's"),
        pytest.param(replace(CHAT, indicator=ACME), "requests=7d, acme/requests=90d", None,
                     id="not the others'"),
        pytest.param(replace(CHAT, indicator=ACME), "requests=7d, b/requests=90d", "for 7d",
                     id="the general rule"),
        pytest.param(
            replace(CHAT, indicator=Indicator(Metric.FEEDBACK, None)), "feedback=1d",
            "feedback for 1d", id="feedback"),
        pytest.param(
            replace(CHAT, indicator=Indicator(Metric.SESSION_SUCCESS, None)), "session_parts=1d",
            "session_parts for 1d", id="sessions"),
        pytest.param(
            replace(CHAT, indicator=replace(CHAT.indicator, members=BOTH)),
            "requests=14d, acme/requests=7d", "for 7d", id="the shortest of a composite"),
    ],
)  # fmt: skip
def test_an_slo_that_covers_more_than_is_kept(
    slo: Slo, retention: str, expected: str | None
) -> None:
    notes = list(short_histories([slo], read_retention(retention)))
    assert len(notes) == (expected is not None)
    assert all("slo 'chat'" in note and str(expected) in note for note in notes)
