"""The order of a run."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from evenkeel_evals.ask.schedule import interleave
from evenkeel_evals.dataset.dataset import Item, Message
from evenkeel_evals.scorers.base import make_scorer

SCORER = make_scorer("exact", "x")


def items(count: int) -> list[Item]:
    return [Item(str(i), (Message("user", "?"),), "x", SCORER, (), "c") for i in range(count)]


@given(st.integers(0, 50), st.integers(0, 10_000))
def test_every_item_once_and_each_side_first_equally_often(count: int, seed: int) -> None:
    pairs = interleave(items(count), seed)
    assert sorted(pair.item.id for pair in pairs) == sorted(item.id for item in items(count))
    firsts = Counter(pair.first for pair in pairs)
    assert abs(firsts["A"] - firsts["B"]) <= count % 2
    for one, other in zip(pairs[::2], pairs[1::2], strict=False):
        assert one.order + other.order in (("A", "B", "B", "A"), ("B", "A", "A", "B"))


def test_the_seed_decides_the_order() -> None:
    ids = [[pair.item.id for pair in interleave(items(20), seed)] for seed in (1, 1, 2)]
    assert ids[0] == ids[1] != ids[2]
