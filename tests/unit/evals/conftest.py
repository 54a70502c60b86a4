"""Answers and pairs for the tests of evaluation runs; hypothesis without wall-clock deadlines."""

from collections.abc import Callable

import pytest
from hypothesis import settings

from evenkeel_evals.ask.answers import Answer, AnsweredPair
from evenkeel_evals.ask.client import Reply
from evenkeel_evals.dataset.dataset import Item, Message
from evenkeel_evals.scorers.base import Label, Score, make_scorer

# A busy machine must not fail a property test.
settings.register_profile("evals", parent=settings.get_profile("suite"), max_examples=60)
settings.load_profile("evals")

MakePair = Callable[..., AnsweredPair]


@pytest.fixture
def make_pair() -> MakePair:
    """Make a pair from correctness and latencies; None is an unscored answer."""

    def answer(is_right: bool | None, ttft_s: float | None) -> Answer:
        if is_right is None:
            return Answer(
                Reply(0, 10, error="HTTP 500: broken"), Score.unscored("HTTP 500: broken"), "1", "2"
            )
        label = Label.RIGHT if is_right else Label.WRONG
        return Answer(
            Reply(0, 10, text="x", ttft_s=ttft_s, e2e_s=1.0, output_tokens=3),
            Score(float(is_right), label),
            "a" * 32,
            "b" * 16,
        )

    def pair(
        index: int,
        a: bool | None = True,
        b: bool | None = True,
        ttft_s: tuple[float, float] = (0.1, 0.1),
        tags: tuple[str, ...] = (),
    ) -> AnsweredPair:
        item = Item(
            f"i{index}", (Message("user", "?"),), "x", make_scorer("exact", "x"), tags, f"c{index}"
        )
        return AnsweredPair(index, item, "A", answer(a, ttft_s[0]), answer(b, ttft_s[1]))

    return pair
