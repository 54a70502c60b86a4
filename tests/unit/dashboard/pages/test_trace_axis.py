"""The axis of the waterfall: over the calls, not over what judges the answer much later."""

import pytest

from evenkeel_dashboard.draw.appearance import LIGHT
from evenkeel_dashboard.pages.request.trace_axis import Axis, axis_of, remark
from evenkeel_dashboard.pages.request.trace_tree import build_trace
from evenkeel_dashboard.pages.request.waterfall import MAX_WORDS, lay_out, shown_data
from tests.unit.dashboard.pages.trace_spans import MS, span

CALL = span("call", start=0, duration=300, name="chat", attributes={"evenkeel.status": "ok"})
JUDGED = span("judged", "call", 4_300, 20, "evenkeel.evaluation.live")


@pytest.mark.parametrize(
    ("spans", "counted", "end_ms"),
    [
        pytest.param([CALL], {"call"}, 300, id="a call alone"),
        pytest.param([CALL, JUDGED], {"call"}, 300, id="judged seconds later"),
        pytest.param([CALL, JUDGED], set(), 300, id="a request that is not stored yet"),
        pytest.param(
            [CALL, span("soon", "call", 310, 20, "evenkeel.evaluation")], {"call"}, 330,
            id="judged at once: everything fits",
        ),
        pytest.param(
            [span("app", duration=5_000, name="ask"), CALL | {"parent_span_id": "app"}, JUDGED],
            {"call"}, 5_000, id="judged while the application goes on",
        ),
        pytest.param(
            [CALL, span("again", start=9_000, duration=100, name="regenerate")], {"call"}, 300,
            id="a long pause after the last request",
        ),
        pytest.param(
            [span("got", duration=1, name="receive"), span("call", start=90, duration=300)],
            {"call"}, 390, id="a pause before the request is part of the trace",
        ),
        pytest.param([JUDGED], set(), 4_320, id="nothing but the judgement"),
        pytest.param([], set(), 0, id="nothing"),
    ],
)  # fmt: skip
def test_the_axis_ends_with_the_call(
    spans: list[dict[str, object]], counted: set[str], end_ms: int
) -> None:
    assert axis_of(build_trace(spans).nodes(), counted).end_ns == end_ms * MS


def test_what_comes_later_is_marked_at_the_edge() -> None:
    trace = build_trace([CALL, JUDGED])
    axis = axis_of(trace.nodes(), {"call"})
    data = shown_data(axis, lay_out(trace, []), LIGHT, set(), {})
    assert data["ticks"] == ["0 ms", "75 ms", "150 ms", "225 ms", "300 ms"]
    assert [(row[5], row[6], row[14]) for row in data["rows"]] == [(0, 1, ""), (1, 0, "+4 s ▸")]
    assert remark(trace.nodes(), axis).startswith("1 span began after the call had ended")
    assert remark(trace.nodes()[:1], axis) == ""


def test_a_bar_that_goes_on_beyond_the_axis_ends_with_it() -> None:
    axis = Axis(0, 100)
    assert (axis.left(50), axis.width(50, 900)) == (0.5, 0.5)
    assert (axis.beyond_words(50, 900), axis.beyond_words(50, 100)) == ("▸", "")


def test_names_are_cut_and_hide_nothing() -> None:
    trace = build_trace([span("a", name="\u202ex" + "y" * 1_000_000)])
    data = shown_data(axis_of(trace.nodes(), set()), lay_out(trace, []), LIGHT, set(), {})
    name = next(word for word in data["words"] if "y" in word)
    assert name.startswith("[U+202E]x") and len(name) < MAX_WORDS + 50
