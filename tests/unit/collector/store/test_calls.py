"""Which of a call's records counts, whatever the order in which they arrive."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel_collector.store.calls import CallKey, HeldRecord, KnownCalls, decide


def counted(
    held: Sequence[str],
    parents: Sequence[str],
    served: Sequence[str] = (),
    before: Sequence[str] = (),
) -> set[str]:
    """Return the counted ones of the held records of trace t; "b<a" has the parent a."""
    known = KnownCalls(
        parents=[("t", *pair.split("<"), "") for pair in parents],  # type: ignore[misc]
        served=[("t", each, "", "") for each in served],
        counted=[("t", each, "") for each in before],
    )
    decided = decide([HeldRecord("t", each) for each in held], known)
    return {span_id for (_, span_id, _), is_counted in decided.items() if is_counted}


@pytest.mark.parametrize(
    ("held", "parents", "served", "before", "expected"),
    [
        pytest.param("c", [], "", "", "c", id="a client alone"),
        pytest.param("c", ["s<c"], "s", "", "", id="client and server"),
        pytest.param("c", ["h<c", "g<h", "o<g", "s<o"], "s", "", "", id="a gateway between"),
        pytest.param("wc", ["c<w"], "", "", "c", id="a wrapper above a client"),
        pytest.param("wc", ["c<w", "s<c"], "s", "", "", id="wrapper, client and server"),
        pytest.param("wab", ["a<w", "b<w"], "", "", "ab", id="a wrapper that tries twice"),
        pytest.param("ab", ["a<r", "b<r"], "", "", "ab", id="two calls of one agent"),
        pytest.param("ab", ["a<r", "b<r", "s<b"], "s", "", "a", id="one of them served by us"),
        pytest.param("c", ["s<x"], "s", "", "c", id="the span between is missing"),
        pytest.param("c", ["c<s"], "s", "", "c", id="a call that a server makes"),
        pytest.param("c", ["c<w"], "", "w", "", id="the wrapper was counted before"),
        pytest.param("w", ["c<w"], "", "c", "", id="the client was counted before"),
        pytest.param("c", [], "", "c", "", id="it was counted before itself"),
        pytest.param("c", [], "c", "", "", id="one id at client and server"),
        pytest.param("ab", ["a<b", "b<a"], "", "", "ab", id="a circle"),
        pytest.param("a", ["a<a"], "", "", "a", id="its own parent"),
        pytest.param("wab", ["a<b", "b<a", "a<w"], "", "", "ab", id="a circle below a wrapper"),
    ],
)  # fmt: skip
def test_a_call_is_one_request(
    held: str, parents: list[str], served: str, before: str, expected: str
) -> None:
    assert counted(held, parents, served, before) == set(expected)


def test_an_answers_id_tells_a_call_whose_trace_is_not_propagated() -> None:
    held = [HeldRecord("t", "c", "chatcmpl-1"), HeldRecord("t", "d", "chatcmpl-2")]
    known = KnownCalls(served=[("u", "s", "chatcmpl-1", ""), ("v", "x", "", "")])
    assert decide(held, known) == {("t", "c", ""): False, ("t", "d", ""): True}
    # A missing id is no id.
    assert decide([HeldRecord("t", "c")], known) == {("t", "c", ""): True}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([("w", 0, 10), ("c", 1, 9)], "c", id="two traces of one call"),
        pytest.param([("v", 0, 10), ("w", 0, 10), ("c", 1, 9)], "c", id="three"),
        pytest.param([("a", 0, 10), ("b", 11, 20)], "ab", id="one id, one after the other"),
        pytest.param([("a", None, None), ("b", 1, 9)], "ab", id="no duration"),
    ],
)
def test_clients_records_of_one_answer_are_one_request(
    records: list[tuple[str, int | None, int | None]], expected: str
) -> None:
    held = [
        HeldRecord(f"trace {span}", span, "msg_1", start_ns=start, end_ns=end)
        for span, start, end in records
    ]
    for order in (held, held[::-1]):
        decided = decide(order, KnownCalls())
        assert {span for (_, span, _), is_counted in decided.items() if is_counted} == set(expected)
        assert len(decided) == len(held)
    # Ids that a sender makes up for all its answers say nothing.
    same = [HeldRecord("t", str(n), "msg_1", start_ns=0, end_ns=9) for n in range(9)]
    assert all(decide(same, KnownCalls()).values())


def test_the_outer_record_of_an_answer_is_decided_with_the_first_that_is_due() -> None:
    outer = HeldRecord("t", "w", "msg_1", is_due=False, start_ns=0, end_ns=10)
    inner = HeldRecord("u", "c", "msg_1", start_ns=1, end_ns=9)
    assert decide([outer, inner], KnownCalls()) == {("t", "w", ""): False, ("u", "c", ""): True}
    of_others = HeldRecord("u", "c", "msg_1", "acme", start_ns=1, end_ns=9)
    held = [HeldRecord("t", "w", "msg_1", "other", start_ns=0, end_ns=10), of_others]
    assert all(decide(held, KnownCalls()).values())


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        pytest.param([("", True, 0, 9), ("", False, 0, 9)], [""], id="the second within the hold"),
        pytest.param([("", True, 0, 9), ("", True, 0, 8)], [""], id="it says more the second time"),
        pytest.param([("a", True, 0, 9), ("", False, 0, 9)], ["a"], id="without its tenant"),
        pytest.param([("", True, at, 9) for at in range(9)], [""], id="many times"),
    ],
)
def test_a_record_that_is_sent_again_is_no_view_of_itself(
    copies: list[tuple[str, bool, int, int]], expected: list[str]
) -> None:
    held = [
        HeldRecord("t", "c", "msg_1", tenant, is_due, start, end)
        for tenant, is_due, start, end in copies
    ]
    for some in (held, held[::-1]):
        decided = decide(some, KnownCalls())
        assert [tenant for (_, _, tenant), is_counted in decided.items() if is_counted] == expected
    # Another record of the answer is still one.
    other = HeldRecord("u", "d", "msg_1", "", True, 1, 5)
    assert sum(decide([*held, other], KnownCalls()).values()) == 1


def test_records_of_two_tenants_are_never_of_one_call() -> None:
    known = KnownCalls(
        parents=[("t", "s", "c", "")],
        served=[("t", "s", "", "other"), ("u", "x", "1", "other")],
    )
    by_tenant = {
        tenant: [
            decide([HeldRecord("t", "c", tenant=tenant)], known)[CallKey("t", "c", tenant)],
            decide([HeldRecord("v", "d", "1", tenant)], known)[CallKey("v", "d", tenant)],
        ]
        for tenant in ("acme", "other", "")
    }
    assert by_tenant == {"acme": [True, True], "other": [False, False], "": [False, False]}


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(
            KnownCalls(served=[("t", "c", "", "other")]), id="a server's of the same span"
        ),
        pytest.param(KnownCalls(counted=[("t", "c", "other")]), id="a counted one of it"),
        pytest.param(
            KnownCalls([("t", "o", "c", "other")], [("t", "o", "", "other")]), id="one below it"
        ),
        pytest.param(KnownCalls([("t", "d", "c", "other")]), id="a parent that is none"),
        pytest.param(
            KnownCalls([("t", "d", "x", "other"), ("t", "x", "c", "other")]),
            id="a way that is none",
        ),
    ],
)
def test_what_another_tenant_says_of_a_trace_takes_no_request(known: KnownCalls) -> None:
    mine = [HeldRecord("t", each, tenant="acme") for each in "cd"]
    theirs = [HeldRecord("t", each, tenant="other") for each in "cdo"]
    decided = decide([*mine, *theirs], known)
    assert [decided[record.key] for record in mine] == [True, True]


def test_what_another_tenant_says_of_a_trace_hides_no_view() -> None:
    mine = [HeldRecord("t", each, tenant="acme") for each in "wc"]
    known = KnownCalls([("t", "c", "x", ""), ("t", "x", "w", "acme"), ("t", "w", "c", "other")])
    assert list(decide(mine, known).values()) == [False, True]


def test_of_a_span_with_and_without_its_tenant_the_one_with_it_counts() -> None:
    held = [HeldRecord("t", "c"), HeldRecord("t", "c", tenant="acme")]
    assert list(decide(held, KnownCalls()).values()) == [False, True]


def test_only_what_is_due_is_decided() -> None:
    held = [HeldRecord("t", "w"), HeldRecord("t", "c", is_due=False)]
    known = KnownCalls(parents=[("t", "c", "w", "")])
    assert decide(held, known) == {("t", "w", ""): False}


@dataclass(frozen=True)
class Arrival:
    at_s: float
    span_id: str
    parent: str
    # held, served or other
    what: str


class Collector:
    """Stores spans as they arrive, and settles once per second, as `CallSettlement` does."""

    HOLD_S = 10.0

    def __init__(self) -> None:
        self.parents: list[tuple[str, str, str, str]] = []
        self.served: list[tuple[str, str, str, str]] = []
        self.held: dict[str, float] = {}
        self.decided: dict[str, bool] = {}

    def run(self, arrivals: Sequence[Arrival]) -> set[str]:
        waiting = sorted(arrivals, key=lambda arrival: arrival.at_s)
        now_s = 0.0
        while waiting or len(self.decided) < len(self.held):
            now_s += 1.0
            while waiting and waiting[0].at_s <= now_s:
                self.store(waiting.pop(0))
            self.settle(now_s)
        return {span_id for _, span_id, *_ in self.served} | {
            span_id for span_id, is_counted in self.decided.items() if is_counted
        }

    def store(self, arrival: Arrival) -> None:
        if arrival.parent:
            self.parents.append(("t", arrival.span_id, arrival.parent, ""))
        if arrival.what == "served":
            self.served.append(("t", arrival.span_id, "", ""))
        if arrival.what == "held":
            self.held[arrival.span_id] = arrival.at_s

    def settle(self, now_s: float) -> None:
        held = [
            HeldRecord("t", span_id, is_due=at_s <= now_s - self.HOLD_S)
            for span_id, at_s in self.held.items()
            if span_id not in self.decided
        ]
        before = [("t", span_id, "") for span_id, is_counted in self.decided.items() if is_counted]
        known = KnownCalls(self.parents, self.served, before)
        self.decided |= {key[1]: value for key, value in decide(held, known).items()}


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[str, str, str]]:
    """Spans of a trace: name, parent and what each is; a server's record has nothing below it."""
    spans: list[tuple[str, str, str]] = []
    for number in range(draw(st.integers(1, 10))):
        above = [name for name, _, what in spans if what != "served"]
        parent = draw(st.sampled_from(["", *above])) if above else ""
        spans.append((f"s{number}", parent, draw(st.sampled_from(["held", "served", "other"]))))
    return spans


def innermost(spans: Sequence[tuple[str, str, str]]) -> set[str]:
    """Return the records without another below them, read from the whole trace at once."""
    parent_of = {name: parent for name, parent, _ in spans}
    records = {name for name, _, what in spans if what != "other"}
    outer = set()
    for name in records:
        above = parent_of[name]
        while above:
            outer.add(above)
            above = parent_of[above]
    return records - outer


@settings(max_examples=200)
@given(trees(), st.integers(0, 10**6))
def test_within_the_hold_every_order_counts_the_innermost(
    spans: list[tuple[str, str, str]], seed: int
) -> None:
    chance = random.Random(seed)
    arrivals = [Arrival(chance.uniform(0, 9), *span) for span in spans]
    assert Collector().run(arrivals) == innermost(spans)


@settings(max_examples=200)
@given(trees(), st.integers(0, 10**6))
def test_however_late_no_call_is_lost(spans: list[tuple[str, str, str]], seed: int) -> None:
    chance = random.Random(seed)
    found = Collector().run([Arrival(chance.uniform(0, 120), *span) for span in spans])
    parent_of = {name: parent for name, parent, _ in spans}
    what_of = {name: what for name, _, what in spans}

    def path(name: str) -> list[str]:
        return [name, *path(parent_of[name])] if name else []

    for leaf in innermost(spans):
        records = [name for name in path(leaf) if what_of[name] != "other"]
        assert found & set(records), "a call is lost"


@settings(max_examples=200)
@given(st.lists(st.floats(0, 120), min_size=2, max_size=5), st.booleans())
def test_a_chain_of_clients_counts_once_however_late(
    delays_s: list[float], is_inner_first: bool
) -> None:
    # A span in the middle that comes later than both its neighbours would hide that they belong
    # together: the guide says so.
    arrivals = [
        Arrival(at_s, f"s{number}", f"s{number - 1}" if number else "", "held")
        for number, at_s in enumerate(sorted(delays_s, reverse=is_inner_first))
    ]
    assert len(Collector().run(arrivals)) == 1
