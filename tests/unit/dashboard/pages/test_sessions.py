"""Sessions in words, rows and bars."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evenkeel_dashboard.draw.appearance import DARK, LIGHT, Palette
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.pages.sessions.figure import timeline_chart
from evenkeel_dashboard.pages.sessions.ledger_bar import (
    CAUSES,
    colour_of_cause,
    read_session_ledger,
    with_tools_as_one,
)
from evenkeel_dashboard.pages.sessions.model import (
    ORDERS,
    chosen_steps,
    cost_words,
    in_order,
    ordering_headers,
    outcome_cell,
    session_cells,
    session_href,
    step_cells,
)
from evenkeel_dashboard.pages.sessions.sentences import clock_skew_s, explanation, notes
from evenkeel_dashboard.pages.sessions.timeline import SessionTimeline, lanes, read_timeline
from evenkeel_dashboard.sessions.ledger import RECOMPUTE

BEGAN = datetime(2026, 11, 20, 10, tzinfo=UTC)


def row(kind: str, start_s: float, lasts_s: float, name: str = "support", **more: Any) -> Any:
    """Return a row of `session_turns`."""
    start = BEGAN + timedelta(seconds=start_s)
    phases: dict[str, float | None] = {"queue_s": None, "prefill_s": None, "decode_s": None}
    if kind == "request":
        phases = {"queue_s": 0.0, "prefill_s": lasts_s / 2, "decode_s": lasts_s / 2}
    return {
        "kind": kind, "start": start, "end": start + timedelta(seconds=lasts_s), "name": name,
        "start_ns": int(start.timestamp() * 1e9), "status": "ok", "service": "s", "trace_id": "t",
        "span_id": f"{kind}-{start_s}-{name}", "parent_span_id": "", "finish_reason": None,
        "request_id": f"r-{start_s}" if kind == "request" else "", "error_type": None,
        "input_tokens": 100 if kind == "request" else None, "output_tokens": 10,
        "cached_tokens": 80, "recompute_s": None, "prefix_evicted_s": None, "cost": 0.001,
        **phases, **more,
    }  # fmt: skip


def agent_run() -> SessionTimeline:
    """Return a turn of 2 s, a tool of 5 s beside a turn of 1 s, and one of 2 s that recomputes."""
    return read_timeline(
        [
            row("request", 0, 2),
            row("tool", 2, 5, "search"),
            row("request", 2, 1),
            row("request", 8, 2, recompute_s=0.5, prefix_evicted_s=3.0),
        ]
    )


def session(**more: Any) -> dict[str, Any]:
    return {
        "session_id": "s-1", "tenant": "acme", "start_ms": 1, "end_ms": 2, "is_open": False,
        "num_requests": 3, "num_tools": 1, "num_error": 0, "input_tokens": 300,
        "output_tokens": 30, "e2e_s": 10.0, "cost": 0.003, "currency": "USD", "model": "support",
        "last_status": "ok", "session_source": "header", "ledger": {}, "recompute_s": None,
    } | more  # fmt: skip


def test_what_the_session_waited_for_is_marked_and_adds_up() -> None:
    found = agent_run()
    assert [s.is_critical for s in found.steps] == [True, False, True, True]
    assert found.ledger is not None
    assert sum(found.ledger.seconds.values()) == pytest.approx(10.0)


def test_the_sentences_say_what_cost_most_and_what_the_cache_would_have_saved() -> None:
    found = agent_run()
    assert found.ledger is not None
    said = explanation(session(), read_session_ledger(found.ledger.seconds), found.evictions)
    assert said == [
        "It was done after 10 s; 50% of that was tools (5 s).",
        "Of the tools it waited longest for search (5 s).",
        "The prefix of a turn was evicted and had to be computed again: a cache hit would "
        "have saved 500 ms.",
        "Evicted while a tool ran: search.",
    ]


def test_an_open_and_a_failed_session_say_so() -> None:
    spent = read_session_ledger({"model.decode": 4.0})
    assert explanation(session(is_open=True), spent, ())[0].startswith("It has taken 4 s")
    failed = explanation(session(last_status="error"), spent, ())
    assert failed[-1] == "It failed: its last request ended with error."
    assert explanation(session(), [], ()) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"is_open": True}, "Still open"),
        (
            {"cost": None},
            "No cost: no price is known for support, or not all that it charges for.",
        ),
        ({"session_source": "chain"}, "each prompt continued the one before, which may be wrong"),
        ({"session_source": "trace"}, "No session ID was sent"),
        ({"num_tools": 0}, "No tool calls were traced"),
    ],
)
def test_what_to_know_about_the_figures(more: dict[str, Any], words: str) -> None:
    assert notes(session(), agent_run(), 100) == []
    (said,) = notes(session(**more), agent_run(), 100)
    assert words in said


def test_clocks_that_differ_are_said() -> None:
    tool = row("tool", 1, 5, "search", span_id="tool")
    inner = row("request", 0.4, 1, parent_span_id="tool")
    found = read_timeline([tool, inner])
    assert clock_skew_s(found.steps) == pytest.approx(0.6)
    assert any(note.startswith("Clocks differ: a step began 600 ms") for note in notes(
        session(), found, 100))  # fmt: skip


def test_thousands_of_turns_are_folded() -> None:
    found = read_timeline([row("request", 2 * i, 1) for i in range(3_000)])
    drawn = lanes(found, (0.0, found.end_s))
    assert [lane.name for lane in drawn] == ["critical path", "turns"]
    assert all(len(lane.marks) <= 1_000 for lane in drawn)
    assert sum(mark.num_steps for mark in drawn[1].marks) == 3_000
    near = lanes(found, (0.0, 10.0))
    assert [mark.num_steps for mark in near[1].marks] == [1] * 6
    path = drawn[0].marks
    pauses_s = sum(m.end_s - m.start_s for m in path if m.cause == "client")
    assert pauses_s == pytest.approx(2_999.0), "folding keeps the share of each cause"
    assert len(timeline_chart(found, (0.0, found.end_s), LIGHT).series) <= 2_000


def test_what_runs_at_once_has_rows_of_its_own() -> None:
    found = read_timeline([row("tool", 0, 5, "a"), row("tool", 1, 5, "b"), row("request", 7, 1)])
    assert [(lane.name, len(lane.marks)) for lane in lanes(found, (0, 8))] == [
        ("critical path", 5), ("turns", 1), ("tools", 1), ("", 1),
    ]  # fmt: skip


def test_tools_are_one_entry_among_the_causes() -> None:
    spent = read_session_ledger({"tool.b": 1.0, "client": 2.0, "tool.a": 3.0, "model.queue": 0.0})
    assert [each.cause for each in spent] == ["tool.a", "tool.b", "client"]
    assert [(e.cause, e.seconds) for e in with_tools_as_one(spent)] == [
        ("tool", 4.0),
        ("client", 2.0),
    ]


def test_a_missing_price_is_not_0() -> None:
    assert cost_words(None, "USD") == "no price"
    assert cost_words(0.0123, "USD") == "0.0123 USD"
    (cells,) = session_cells([session(cost=None)], {}, LIGHT)
    assert cells[9].text == "no price"


def test_the_outcome_is_that_of_the_last_request() -> None:
    assert outcome_cell(session(last_status="error")) == Cell("error", level="bad")
    assert outcome_cell(session(is_open=True, last_status="error")).text == "open, error"
    assert outcome_cell(session(is_open=True)).text == "open"


def test_rows_link_to_the_session_and_its_requests() -> None:
    params = {"range": "6h", "page": "3", "order": "cost"}
    assert session_href(session(), params) == "./sessions?session_id=s-1&of=acme&range=6h"
    listed = chosen_steps(agent_run().steps, "request", "longest")
    assert [number for number, _ in listed] == [1, 4, 2]
    first = step_cells(listed, "USD", {}, LIGHT)[0]
    assert first[2].href.startswith("./request?request_id=r-0&at=")


def test_sessions_stay_in_the_order_of_their_keys() -> None:
    first, second = session(session_id="a"), session(session_id="b")
    keys = ["acme"] * 3, ["b", "gone", "a"]
    for order in ORDERS:
        assert in_order([first, second], *keys, order) == [second, first]
    # It went on after the keys were read.
    grown = first | {"e2e_s": second["e2e_s"] + 1, "num_requests": second["num_requests"] + 1}
    for order in ("e2e", "turns"):
        assert in_order([grown, second], *keys, order) == [grown, second]


def test_headers_order_by_what_the_store_can_order_by() -> None:
    headers = {h.text: h.href for h in ordering_headers({"order": "cost", "page": "2"})
               if isinstance(h, Cell)}  # fmt: skip
    assert headers["cost ▼"] == "./sessions?order=cost"
    assert headers["time to done"] == "./sessions?order=e2e"
    assert headers["tools"] == ""


# Machado, Oliveira and Fernandes (2009): what a person sees who lacks one kind of cone.
VISIONS = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "no green": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "no blue": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}


def light_of(colour: str) -> list[float]:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def lab(light: Sequence[float]) -> tuple[float, float, float]:
    """CIE L*a*b*: a distance of 2 is just seen, one of 25 is seen at a glance."""
    red, green, blue = (min(1.0, max(0.0, part)) for part in light)
    x = 0.4124 * red + 0.3576 * green + 0.1805 * blue
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = 0.0193 * red + 0.1192 * green + 0.9505 * blue
    fx, fy, fz = (
        t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x / 0.9505, y, z / 1.089)
    )
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_recomputed_prefixes_look_like_nothing_else(palette: Palette, vision: str) -> None:
    def seen(colour: str) -> tuple[float, float, float]:
        light = light_of(colour)
        return lab([sum(a * b for a, b in zip(row, light, strict=True)) for row in VISIONS[vision]])

    recomputed = seen(colour_of_cause(RECOMPUTE, palette))
    others = {c: seen(colour_of_cause(c, palette)) for c in CAUSES if c != RECOMPUTE}
    alike = {c: round(math.dist(s, recomputed)) for c, s in others.items()}
    assert min(alike.values()) >= 25, alike
    assert math.dist(recomputed, seen(palette.card)) >= 30
