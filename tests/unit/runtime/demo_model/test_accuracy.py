"""When an answer counts as right, and what a slice without items has."""

import pytest

from tools.demo_model.accuracy import Accuracy, is_right, score


@pytest.mark.parametrize(
    ("scorer", "reference", "answer", "right"),
    [
        ("exact", "Order 12345.", "Order 12345.\n", True),
        ("exact", "Order 12345.", "order 12345.", False),
        ("exact", "Order 12345.", "Order 12354.", False),
        ("normalised", "Press  Apply.", "press apply. ", True),
        ("normalised", "Press Apply.", "Press Apply", False),
        ("json", '{"a": "1", "b": "2"}', '{"b":"2","a":"1"}', True),
        ("json", '{"a": "1"}', '{"a": 1}', False),
        ("json", '{"a": "1"}', 'Here: {"a": "1"}', False),
        ("json", '{"a": "1"}', "", False),
    ],
)
def test_scorers(scorer: str, reference: str, answer: str, right: bool) -> None:
    assert is_right(scorer, reference, answer) is right


def test_an_unknown_scorer_is_refused() -> None:
    with pytest.raises(ValueError, match="'fuzzy'"):
        is_right("fuzzy", "a", "a")


def test_each_tag_and_the_whole_are_counted() -> None:
    items = [
        {"scorer": "exact", "reference": "a", "tags": ["x"]},
        {"scorer": "exact", "reference": "b", "tags": ["x", "y"]},
    ]
    assert score(items, ["a", "c"]) == {
        "x": Accuracy(1, 2),
        "y": Accuracy(0, 1),
        "overall": Accuracy(1, 2),
    }


def test_no_items_have_no_accuracy() -> None:
    assert Accuracy(0, 0).ratio is None
