"""The index agrees with a plain search, whatever was added and removed."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.embedding import DIMENSIONS
from evenkeel_runtime.response_cache.embedder import Vector
from evenkeel_runtime.response_cache.memory_backend import OVERHEAD_BYTES
from evenkeel_runtime.response_cache.neighbours import GRAPH_FROM, Neighbours


def unit_vectors(count: int, seed: int) -> Vector:
    rows = np.random.default_rng(seed).standard_normal((count, DIMENSIONS)).astype(np.float32)
    normed: Vector = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return normed


VECTORS = unit_vectors(12, 1)
STEP = st.tuples(st.booleans(), st.integers(0, 11), st.sampled_from(["x", "y"]))


@settings(deadline=None)
@given(st.lists(STEP, max_size=40), st.integers(0, 11))
def test_it_finds_what_a_plain_search_finds(steps: list[tuple[bool, int, str]], asked: int) -> None:
    index, plain = Neighbours(), dict[str, str]()
    for is_added, number, scope in steps:
        if is_added:
            index.add(str(number), scope, VECTORS[number])
            plain[str(number)] = scope
        else:
            index.remove(str(number))
            plain.pop(str(number), None)
    assert len(index) == len(plain)
    for scope in ("x", "y"):
        own = [name for name, where in plain.items() if where == scope]
        assert index.has_scope(scope) == bool(own)
        expected = sorted(-float(VECTORS[int(n)] @ VECTORS[asked]) for n in own)[:3]
        found = [-n.similarity for n in index.search(scope, VECTORS[asked], 3)]
        assert found == pytest.approx(expected, abs=1e-6)
        assert {n.entry_id for n in index.search(scope, VECTORS[asked], 12)} == set(own)


@pytest.mark.parametrize(
    "more",
    [pytest.param(200, id="while they move"), pytest.param(GRAPH_FROM, id="after they moved")],
)
def test_many_are_kept_in_a_graph_and_found_again(more: int) -> None:
    rows = unit_vectors(GRAPH_FROM + more, 2)
    index = Neighbours()
    for number, row in enumerate(rows):
        index.add(str(number), "x", row)
    for number in range(0, len(rows), 7):
        assert index.search("x", rows[number], 1)[0].entry_id == str(number)
    index.remove("0")
    index.add("7", "x", rows[0])
    nearest = index.search("x", rows[0], 2)
    assert nearest[0].entry_id == "7"
    assert nearest[0].similarity == pytest.approx(1.0, abs=2e-3)
    assert len(index) == len(rows) - 1


def test_questions_of_many_conversations_take_no_more_memory_than_is_counted_for_them() -> None:
    index, vector = Neighbours(), np.ones(DIMENSIONS, np.float32)
    names = [(f"entry-{number}", f"conversation-{number}") for number in range(1000)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for entry_id, scope in names:
        index.add(entry_id, scope, vector)
        index.learn(entry_id, vector)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 1000 * OVERHEAD_BYTES


def test_a_list_whose_questions_are_gone_takes_no_memory() -> None:
    index, vector = Neighbours(), np.ones(DIMENSIONS, np.float32)
    names = [str(number) for number in range(GRAPH_FROM + 1)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for name in names:
        index.add(name, "x", vector)
    for name in names[:-1]:
        index.remove(name)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(index) == 1
    assert after - before < 4e6


def test_questions_are_replaced_and_removed_while_they_move_into_the_graph() -> None:
    index, rows = Neighbours(), unit_vectors(GRAPH_FROM + 52, 4)
    names = [str(number) for number in range(GRAPH_FROM + 50)]
    for name, row in zip(names, rows, strict=False):
        index.add(name, "x", row)
    # The first is still in the list, the last is in the graph.
    for row, name in zip(rows[-2:], (names[0], names[-1]), strict=True):
        index.add(name, "x", row)
        index.add(name, "x", row)
        assert [n.entry_id for n in index.search("x", row, 1)] == [name]
    assert len(index) == len(names)
    for name in names[1:-1]:
        index.remove(name)
    assert {n.entry_id for n in index.search("x", rows[0], 9)} == {names[0], names[-1]}
    index.remove(names[0])
    index.remove(names[-1])
    assert not index.has_scope("x")
    assert index.search("x", rows[0], 9) == []
    index.add("new", "x", rows[0])
    assert [n.entry_id for n in index.search("x", rows[0], 9)] == ["new"]
