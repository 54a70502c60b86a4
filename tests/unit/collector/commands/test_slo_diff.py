"""Which alerts a changed SLO file would have sent, or spared."""

import json

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.slo.backtest import AlertSpan
from evenkeel.slo.burn_rates import Severity
from evenkeel_collector.commands.slo_diff import compare_alerts, diff_json, diff_text

PAGE, TICKET = Severity.PAGE, Severity.TICKET


def spans(severity: Severity, *minutes: tuple[int, int]) -> list[AlertSpan]:
    return [AlertSpan("chat", severity, first, last) for first, last in minutes]


def test_an_alert_stays_while_it_overlaps_one_of_its_severity() -> None:
    old = spans(PAGE, (10, 20), (40, 50)) + spans(TICKET, (10, 90))
    new = spans(PAGE, (20, 30), (60, 70)) + spans(TICKET, (91, 95))
    diff = compare_alerts("chat", old, new)
    assert list(diff.appear) == spans(PAGE, (60, 70)) + spans(TICKET, (91, 95))
    assert list(diff.disappear) == spans(PAGE, (40, 50)) + spans(TICKET, (10, 90))
    assert diff.num_stay == 1


SPANS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 9), st.sampled_from(list(Severity))).map(
        lambda drawn: AlertSpan("chat", drawn[2], drawn[0], drawn[0] + drawn[1])
    ),
    max_size=5,
)


@given(old=SPANS, new=SPANS)
def test_the_other_way_round_what_appears_disappears(
    old: list[AlertSpan], new: list[AlertSpan]
) -> None:
    there, back = compare_alerts("chat", old, new), compare_alerts("chat", new, old)
    assert (there.appear, there.disappear) == (back.disappear, back.appear)
    assert there.num_stay + len(there.appear) == len(new)
    assert compare_alerts("chat", old, old).appear == ()


def test_differences_are_told_by_slo_in_order_of_time() -> None:
    added = compare_alerts("new-one", [], spans(PAGE, (29_000_000, 29_000_009)), is_in_old=False)
    moved = compare_alerts("chat", spans(PAGE, (28_000_000, 28_000_004)), spans(PAGE, (60, 70)))
    text = diff_text([moved, added, compare_alerts("same", [], [])], 30)
    assert text.split("\n\n") == [
        "chat\n+ page    1970-01-01 01:00 to 1970-01-01 01:10  (11 min)\n"
        "- page    2023-03-28 10:40 to 2023-03-28 10:44  (5 min)",
        "new-one (new)\n+ page    2025-02-19 21:20 to 2025-02-19 21:29  (10 min)",
        "same\n  no alert changed",
        "of the last 30 days: 2 would appear, 1 would disappear, 0 stay",
    ]
    assert diff_text([moved], 1).endswith(
        "of the last day: 1 would appear, 1 would disappear, 0 stay"
    )
    assert diff_text([], 7) == "no SLO changed"
    shown = json.loads(json.dumps(diff_json(added)))
    assert (shown["is_in_old"], len(shown["appear"]), shown["num_stay"]) == (False, 1, 0)
