"""The tree of a session has roots and no cycle, whatever the times and parents that spans state."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel_dashboard.sessions.ledger import account
from evenkeel_dashboard.sessions.tree import grow
from evenkeel_dashboard.sessions.work import Work, WorkKind

MS = 1_000_000


def work(kind: WorkKind, begin_ms: int, end_ms: int, own: str, parent: str | None = None) -> Work:
    return Work(kind, begin_ms * MS, end_ms * MS, own, id=own, parent_id=parent or "", trace_id="t")


def test_work_does_not_belong_to_an_agent_that_it_called() -> None:
    works = [
        work(WorkKind.TOOL, 2, 10_000, "n", "unknown"),
        work(WorkKind.TOOL, 1, 10_000, "b", "n"),
        work(WorkKind.AGENT, 0, 10_000, "a", "b"),
        work(WorkKind.REQUEST, 3, 10_000, "r", "a"),
    ]
    nodes = {node.work.name: node for node in grow(works)}
    parents = {name: node.parent and node.parent.work.name for name, node in nodes.items()}
    assert parents == {"n": None, "b": "n", "a": "b", "r": "a"}
    ledger = account(works)
    assert ledger is not None
    assert ledger.seconds["model.other"] == pytest.approx(9.997)


works_of_any_parents = st.lists(
    st.tuples(
        st.sampled_from(WorkKind),
        st.integers(0, 4),
        st.integers(0, 4),
        st.sampled_from([*"0123456", "unknown", ""]),
    ),
    max_size=7,
)


@settings(max_examples=300, deadline=None)
@given(works_of_any_parents)
def test_whatever_the_parents_are_every_node_leads_to_a_root(
    drawn: list[tuple[WorkKind, int, int, str]],
) -> None:
    nodes = grow(
        [
            work(kind, begin, begin + length, str(place), parent)
            for place, (kind, begin, length, parent) in enumerate(drawn)
        ]
    )
    for node in nodes:
        at, steps = node, 0
        while at.parent is not None:
            assert at in at.parent.children
            at, steps = at.parent, steps + 1
            assert steps < len(nodes)
