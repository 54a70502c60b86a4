"""Embeddings take no more time, room and computing than they may."""

import asyncio
import time
from collections.abc import Coroutine
from threading import Event
from time import thread_time
from typing import Any

import numpy as np
import pytest

from evenkeel_runtime.response_cache.embedder import (
    BEGIN_WITH_S,
    PAID_BY_A_FIND,
    SAVED_UP_S,
    SHARE,
    Embedder,
    EmbeddingBudget,
    Vector,
)
from tests.fixtures.manual_clock import ManualClock


def vector(text: str) -> Vector:
    return np.full(3, len(text), dtype=np.float32)


def test_what_finds_nothing_gets_a_share_of_a_core() -> None:
    clock = ManualClock(0.0)
    budget = EmbeddingBudget(clock)
    spent = 0.0
    for _ in range(100_000):
        clock.now_s += 0.01
        if budget.has_any():
            budget.spend(0.012)
            spent += 0.012
    assert spent == pytest.approx(BEGIN_WITH_S + SHARE * clock.now_s, rel=0.01)


@pytest.mark.parametrize(
    ("finds_in_100", "is_limited"),
    [pytest.param(12, False, id="one in eight finds"), pytest.param(4, True, id="one in 25")],
)
def test_what_finds_enough_is_not_limited(finds_in_100: int, is_limited: bool) -> None:
    budget = EmbeddingBudget(ManualClock(0.0))
    refused = 0
    for number in range(10_000):
        if not budget.has_any():
            refused += 1
            continue
        budget.spend(0.012)
        if number % 100 < finds_in_100:
            budget.record_find(0.012)
    assert (refused > 5000) is is_limited
    assert PAID_BY_A_FIND == 10


class HeldLoop(asyncio.SelectorEventLoop):
    """No limit passes in it before `let_go`; then all that were set pass at once."""

    is_held = True

    def time(self) -> float:
        return 0.0 if self.is_held else 3600.0 + super().time()

    def let_go(self) -> None:
        """Let the time pass; thread-safe."""
        self.call_soon_threadsafe(setattr, self, "is_held", False)


def run_held(loop: HeldLoop, scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario)


def test_texts_that_are_ready_in_time_are_returned_and_the_others_dropped() -> None:
    loop, hung, limit_s = HeldLoop(), Event(), 0.05
    seen: list[str] = []

    def encode(text: str) -> Vector:
        seen.append(text)
        if text == "slow":
            time.sleep(2 * limit_s)
            loop.let_go()
            assert hung.wait(600)
        return vector(text)

    async def scenario() -> None:
        embedder = Embedder(encode, limit_s, Spendings())
        embedded = await embedder.embed(["fast", "slow", "after"])
        assert [v[0] for v in embedded.vectors] == [4]
        assert embedded.outcome == "late"
        # At once: nothing is queued behind it.
        assert (await embedder.embed(["next"])).outcome == "queue_full"
        hung.set()
        async with asyncio.timeout(120):
            while (again := await embedder.embed(["again"])).outcome != "done":
                await asyncio.sleep(0.01)
        assert [v[0] for v in again.vectors] == [5]
        # On a busy machine some may be late themselves; nothing behind the slow one is embedded.
        assert set(seen) == {"fast", "slow", "again"}
        embedder.close()

    run_held(loop, scenario())


class Spendings(EmbeddingBudget):
    """Notes what is taken."""

    def __init__(self) -> None:
        super().__init__(ManualClock(0.0))
        self.taken_s: list[float] = []

    def spend(self, cost_s: float) -> None:
        self.taken_s.append(cost_s)


def test_what_is_late_costs_its_limit_or_its_computing_whichever_is_more() -> None:
    budget, loop, hung = Spendings(), HeldLoop(), Event()

    def encode(text: str) -> Vector:
        loop.let_go()
        assert hung.wait(600)
        until_s = thread_time() + 0.05
        while thread_time() < until_s:
            pass
        return vector(text)

    async def scenario() -> None:
        embedder = Embedder(encode, 0.02, budget)
        assert (await embedder.embed(["slow"])).outcome == "late"
        hung.set()
        async with asyncio.timeout(120):
            while len(budget.taken_s) < 2:
                await asyncio.sleep(0.01)
        embedder.close()

    run_held(loop, scenario())
    assert budget.taken_s[0] == 0.02
    assert sum(budget.taken_s) == pytest.approx(0.05, abs=0.02)


async def test_what_fails_costs_what_it_computed() -> None:
    budget = Spendings()

    def encode(text: str) -> Vector:
        raise ValueError(text)

    embedder = Embedder(encode, 120, budget)
    with pytest.raises(ValueError, match="text"):
        await embedder.embed(["text"])
    embedder.close()
    assert len(budget.taken_s) == 1


async def test_without_a_budget_nothing_is_embedded() -> None:
    budget = EmbeddingBudget(ManualClock(0.0))
    budget.spend(SAVED_UP_S)
    embedder = Embedder(vector, 10, budget)
    assert (await embedder.embed(["text"])).outcome == "budget"
    embedder.close()
