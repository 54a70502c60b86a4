"""The tree of a trace: joined by parents, whatever was received."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_dashboard.pages.request.trace_tree import Node, build_trace
from tests.unit.dashboard.pages.trace_spans import MS, span


def drawn(nodes: list[Node], depth: int = 0) -> list[str]:
    """Return the ids, each indented below its parent."""
    return [
        line for node in nodes for line in (" " * depth + node.id, *drawn(node.children, depth + 1))
    ]


@pytest.mark.parametrize(
    ("spans", "tree", "remark"),
    [
        pytest.param([span("c", "b", 2), span("b", "a", 1), span("a")], ["a", " b", "  c"], "",
            id="children before their parents"),
        pytest.param([span("b", "a"), span("c", "b", 1)], ["b", " c"],
            "The caller's own span was not received: the trace begins with what it called.",
            id="no root"),
        pytest.param([span("a"), span("c", "lost", 1)], ["a", "c"],
            "1 span names a parent that was not received.", id="a missing parent"),
        pytest.param([span("a", "b", 1), span("b", "a", 2)], ["a", " b"],
            "1 span was its own ancestor: its parent is ignored.", id="a circle of two"),
        pytest.param([span("a", "a")], ["a"],
            "1 span was its own ancestor: its parent is ignored.", id="its own parent"),
        pytest.param([span("r"), span("a", "c", 1), span("b", "a", 2), span("c", "b", 3),
            span("d", "b", 4)], ["r", "a", " b", "  c", "  d"],
            "1 span was its own ancestor: its parent is ignored.", id="a circle with a branch"),
        pytest.param([span("a"), span("b", "a", 1), span("b", "a", 1)], ["a", " b"],
            "1 span was received again and is shown once.", id="sent twice"),
        pytest.param([span("a", duration=9), span("b", "a", 1, role="Client", duration=7),
            span("b", "a", 2, role="Server", duration=4), span("c", "b", 3, duration=1)],
            ["a", " b", " b", "  c"], "1 span has the id of another span.", id="a shared id"),
        pytest.param([], [], "", id="nothing"),
    ],
)  # fmt: skip
def test_every_span_is_in_the_tree_once(
    spans: list[dict[str, object]], tree: list[str], remark: str
) -> None:
    trace = build_trace(spans)
    assert drawn(list(trace.roots)) == tree
    assert list(trace.remarks) == [remark] * bool(remark)


def test_a_server_whose_clock_is_ahead_is_moved_into_its_callers_span() -> None:
    trace = build_trace([
        span("client", start=0, duration=100, service="app", role="Client"),
        span("server", "client", start=130, duration=60, service="model", role="Server"),
        span("phase", "server", start=140, duration=30, service="model"),
    ])  # fmt: skip
    (client,) = trace.roots
    (server,) = client.children
    (phase,) = server.children
    assert (server.end_ns - client.start_ns, server.moved_ns) == (100 * MS, -90 * MS)
    assert phase.start_ns - server.start_ns == 10 * MS
    assert trace.remarks == [
        "Clocks differ; spans were moved to lie within their callers': model by −90 ms."
    ]


@pytest.mark.parametrize(
    "child",
    [
        pytest.param(span("b", "a", 5, duration=3, service="model", role="Server"), id="within"),
        pytest.param(span("b", "a", 90, duration=300, service="model", role="Server"),
            id="longer than its caller"),
        pytest.param(span("b", "a", 90, duration=30, service="app"), id="the same clock"),
        pytest.param(span("b", "a", 90, duration=30, service="x", role="Consumer"),
            id="taken from a queue later"),
    ],
)  # fmt: skip
def test_what_cannot_be_known_is_not_moved(child: dict[str, object]) -> None:
    trace = build_trace([span("a", duration=100, service="app", role="Client"), child])
    assert trace.roots[0].children[0].moved_ns == 0
    assert not trace.remarks


def test_times_that_the_collector_replaced_are_named() -> None:
    odd = span("a", attributes={"evenkeel.clamped.start_unix_nano": "0"}, duration=0)
    trace = build_trace([odd])
    assert trace.roots[0].is_clamped
    assert "had times that cannot be right" in trace.remarks[0]


def test_a_trace_that_is_too_long_says_how_much_is_shown() -> None:
    rows = [span(str(i), num_spans=100_000) for i in range(20)]
    assert build_trace(rows).remarks[0] == "The trace has 100 k spans; the first 20 are shown."


ids = st.sampled_from("abcdef")


@given(
    st.lists(st.tuples(ids, st.sampled_from(["", "x", *"abcdef"]), st.integers(0, 9)), max_size=12)
)
def test_whatever_the_parents_are_no_span_is_lost_or_repeated(
    links: list[tuple[str, str, int]],
) -> None:
    rows = [span(name, parent, start) for name, parent, start in links]
    trace = build_trace(rows)
    # Repeats are the same in id and start; their parents may differ.
    different = {(name, start) for name, _, start in links}
    assert sorted((n.id, n.start_ns // MS) for n in trace.nodes()) == sorted(different)


@given(st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(random: object) -> None:
    rows = [span("r"), *(span(f"c{i}", "r" if i < 3 else f"c{i - 3}", i) for i in range(9))]
    expected = drawn(list(build_trace(rows).roots))
    random.shuffle(rows)  # type: ignore[attr-defined]
    assert drawn(list(build_trace(rows).roots)) == expected


def test_a_span_without_an_id_is_nobodys_parent() -> None:
    trace = build_trace([span("", name="nameless"), span("a", start=1), span("b", "a", 2)])
    assert [root.id for root in trace.roots] == ["", "a"]
    assert not trace.remarks
