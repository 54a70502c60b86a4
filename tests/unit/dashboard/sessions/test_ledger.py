"""The ledger of a session: every moment charged once, to what the session waited for."""

import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel_dashboard.sessions.evictions import During, find_evictions
from evenkeel_dashboard.sessions.ledger import SessionLedger, account, phases
from evenkeel_dashboard.sessions.work import Work, WorkKind

S = 1_000_000_000


def request(start_s: float, end_s: float, **more: Any) -> Work:
    return Work(WorkKind.REQUEST, round(start_s * S), round(end_s * S), "m", **more)


def tool(start_s: float, end_s: float, name: str = "grep", **more: Any) -> Work:
    return Work(WorkKind.TOOL, round(start_s * S), round(end_s * S), name, **more)


def agent(start_s: float, end_s: float, **more: Any) -> Work:
    return Work(WorkKind.AGENT, round(start_s * S), round(end_s * S), "sub", **more)


def ledger(*works: Work) -> SessionLedger:
    found = account(works)
    assert found is not None
    return found


def seconds(*works: Work) -> dict[str, float]:
    return {cause: round(value, 6) for cause, value in ledger(*works).seconds.items()}


@pytest.mark.parametrize(
    ("works", "expected"),
    [
        pytest.param([request(0, 2)], {"model.other": 2}, id="one request of unknown phases"),
        pytest.param(
            [request(0, 4, queue_s=1, prefill_s=2, decode_s=0.5, recompute_s=1.5)],
            {
                "model.queue": 1,
                "model.recompute": 1.5,
                "model.prefill": 0.5,
                "model.decode": 0.5,
                "model.other": 0.5,
            },
            id="the phases of a request",
        ),
        pytest.param(
            [request(0, 1), tool(1, 3), request(3.5, 5)],
            {"model.other": 2.5, "tool.grep": 2, "client": 0.5},
            id="a turn, a tool, a pause",
        ),
        pytest.param(
            [request(0, 1), tool(1, 3, "a"), tool(1, 7, "b"), tool(2, 4, "c"), request(7, 8)],
            {"model.other": 2, "tool.b": 6},
            id="of tools that run at once, the one that was waited for",
        ),
        pytest.param(
            [
                request(0, 1),
                tool(1, 9, "Task", id="t"),
                agent(1.5, 8.5, id="a", parent_id="t"),
                request(2, 4, parent_id="a"),
                tool(4, 5, "read", parent_id="a"),
                request(6, 8, parent_id="a"),
                request(9, 10),
            ],
            {"model.other": 6, "tool.read": 1, "tool.Task": 3},
            id="a sub-agent within a tool",
        ),
        pytest.param(
            [
                tool(0, 10, "Task", id="t"),
                request(1, 4, parent_id="t"),
                request(1, 9, parent_id="t"),
                request(2, 3, parent_id="t"),
            ],
            {"model.other": 8, "tool.Task": 2},
            id="requests of a sub-agent at once",
        ),
        pytest.param(
            [request(0, 1, id="x", parent_id="y"), tool(1, 2, id="y", parent_id="x")],
            {"model.other": 1, "tool.grep": 1},
            id="a cycle among parents",
        ),
        pytest.param(
            [tool(0, 2, id="t"), request(1, 5, parent_id="t")],
            {"tool.grep": 1, "model.other": 4},
            id="what outlives its caller is charged beside it",
        ),
        pytest.param(
            [request(5, 5), request(0, 0)], {"client": 5}, id="requests that took no time"
        ),
        pytest.param(
            [request(0, 2, id="client"), request(0.5, 1.5, parent_id="client", decode_s=1)],
            {"model.other": 1, "model.decode": 1},
            id="a request traced at the client and at the server",
        ),
    ],
)
def test_causes(works: list[Work], expected: dict[str, float]) -> None:
    assert seconds(*works) == pytest.approx(expected)


def test_no_work_has_no_ledger() -> None:
    assert account([]) is None
    assert account([agent(0, 5)]) is None


def test_a_request_in_an_unrecorded_step_of_an_agent_is_the_agents() -> None:
    task = tool(0, 10, "Task", id="t", trace_id="x")
    inner = agent(0, 10, id="a", parent_id="t", trace_id="x")
    step = request(2, 4, parent_id="unrecorded", trace_id="x")
    assert seconds(task, inner, step) == {"tool.Task": 8, "model.other": 2}
    other = request(2, 4, parent_id="unrecorded", trace_id="another")
    assert seconds(task, inner, other) == {"tool.Task": 10}


def test_what_the_cache_would_have_saved() -> None:
    found = ledger(request(0, 2, prefill_s=1, recompute_s=0.5), request(3, 9, recompute_s=4))
    assert found.saved_s == pytest.approx(4.5)
    assert found.total("model.") == pytest.approx(8)


times = st.integers(0, 40)


@st.composite
def any_work(draw: st.DrawFn) -> Work:
    start, length = draw(times), draw(st.integers(0, 20))
    kind = draw(st.sampled_from(list(WorkKind)))
    phase = st.none() | st.floats(0, 9)
    return Work(
        kind,
        start * S,
        (start + length) * S,
        draw(st.sampled_from("ab")),
        id=draw(st.sampled_from(["", *"123456"])),
        parent_id=draw(st.sampled_from(["", *"1234567"])),
        trace_id=draw(st.sampled_from("xy")),
        queue_s=draw(phase),
        prefill_s=draw(phase),
        decode_s=draw(phase),
        recompute_s=draw(phase),
        evicted_s=draw(phase),
        input_tokens=draw(st.none() | st.integers(0, 9000)),
        cached_tokens=draw(st.none() | st.integers(0, 9000)),
    )


@given(st.lists(any_work(), max_size=12))
@settings(deadline=None)
def test_every_moment_is_charged_once(works: list[Work]) -> None:
    found = account(works)
    if found is None:
        assert all(work.kind is WorkKind.AGENT for work in works)
        return
    assert math.isclose(sum(found.seconds.values()), found.e2e_s, abs_tol=1e-9)
    edges = [found.start_ns, *(stretch.end_ns for stretch in found.path)]
    assert [stretch.start_ns for stretch in found.path] == edges[:-1]
    assert edges[-1] == found.end_ns
    assert all(stretch.start_ns < stretch.end_ns for stretch in found.path)


@given(st.lists(any_work(), max_size=12))
@settings(deadline=None)
def test_only_work_that_runs_is_charged(works: list[Work]) -> None:
    found = account(works)
    for stretch in () if found is None else found.path:
        if stretch.work is not None:
            assert stretch.work.start_ns <= stretch.start_ns
            assert stretch.end_ns <= stretch.work.end_ns
        if stretch.cause == "client":
            roots = [node.work for node in found.tree if node.parent is None] if found else []
            busy = [w for w in roots if w.kind is not WorkKind.AGENT]
            assert not [
                w for w in busy if w.start_ns < stretch.end_ns and w.end_ns > stretch.start_ns
            ]


@given(any_work())
def test_phases_fill_a_request(work: Work) -> None:
    found = phases(work)
    edges = [work.start_ns, *(end for _, _, end in found)]
    assert [start for _, start, _ in found] == edges[:-1]
    assert edges[-1] == work.end_ns


@given(st.lists(any_work(), max_size=12))
@settings(deadline=None)
def test_evictions_are_of_requests(works: list[Work]) -> None:
    found = account(works)
    for each in () if found is None else find_evictions(found.tree):
        assert each.work.kind is WorkKind.REQUEST
        assert (each.tool is not None) == (each.during is During.TOOL)


@pytest.mark.parametrize(
    ("works", "during", "name"),
    [
        pytest.param(
            [request(0, 1), tool(1, 30, "build"), request(31, 33, recompute_s=1, evicted_s=20)],
            During.TOOL,
            "build",
            id="the engine says when",
        ),
        pytest.param(
            [
                request(0, 1),
                tool(1, 30, "build"),
                tool(2, 20, "read"),
                request(31, 33, recompute_s=1, evicted_s=20),
            ],
            During.TOOL,
            "build",
            id="of tools that run at once, the one that was waited for",
        ),
        pytest.param(
            [request(0, 1), tool(1, 30), request(90, 93, recompute_s=1, evicted_s=20)],
            During.CLIENT,
            None,
            id="in a pause after the tool",
        ),
        pytest.param(
            [request(0, 1), tool(1, 30, "build"), request(31, 33, recompute_s=1)],
            During.TOOL,
            "build",
            id="the engine does not say when",
        ),
        pytest.param(
            [request(0, 1), request(0, 30), request(31, 33, recompute_s=1, evicted_s=10)],
            During.MODEL,
            None,
            id="while another request ran",
        ),
        pytest.param(
            [
                request(0, 1, input_tokens=9000, cached_tokens=0),
                tool(1, 30, "build"),
                request(31, 33, input_tokens=9400, cached_tokens=1024),
            ],
            During.TOOL,
            "build",
            id="inferred from the cached tokens",
        ),
    ],
)
def test_an_eviction_is_named(works: list[Work], during: During, name: str | None) -> None:
    (found,) = find_evictions(ledger(*works).tree)
    assert (found.during, found.tool) == (during, name)


def test_a_prompt_that_starts_anew_lost_nothing() -> None:
    works = [
        request(0, 1, input_tokens=9000, cached_tokens=0),
        request(2, 3, input_tokens=2000, cached_tokens=0),
        request(4, 5, input_tokens=2400, cached_tokens=1984),
    ]
    assert find_evictions(ledger(*works).tree) == []


def test_a_session_of_100_000_requests_takes_seconds() -> None:
    works = [
        request(n * 3, n * 3 + 2, input_tokens=n, cached_tokens=0, recompute_s=0.1)
        for n in range(100_000)
    ]
    found = ledger(*works, tool(0, 300_000))
    assert sum(found.seconds.values()) == pytest.approx(300_000)
    assert len(find_evictions(found.tree)) == 100_000


def test_a_long_tool_beside_others_is_walked_once() -> None:
    """Its calls are not sorted again for every piece of it."""
    number = 10_000
    works = [tool(0, number, id="long"), tool(number - 1, number + 1)]
    for n in range(number):
        works.append(tool(n, n + 0.3, parent_id="long"))
        works.append(request(n + 0.5, n + 0.9))
    began_s = time.process_time()
    found = ledger(*works)
    assert time.process_time() - began_s < 10
    assert sum(found.seconds.values()) == pytest.approx(number + 1)
    assert found.total("model.") == pytest.approx(0.4 * (number - 1))


@pytest.mark.parametrize("num_agents", [32, 33, 3_000])
def test_however_deep_an_agent_is_its_requests_are_the_models(num_agents: int) -> None:
    agents = [
        agent(0, 9, id=f"a{n}", parent_id=f"a{n - 1}" if n else "") for n in range(num_agents)
    ]
    found = ledger(*agents, request(2, 5, parent_id=f"a{num_agents - 1}"))
    assert found.seconds == {"model.other": 3.0}
