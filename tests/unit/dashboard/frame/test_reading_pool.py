"""Queries run with bounded concurrency, and are dropped if nobody waits for them."""

import threading
from concurrent.futures import CancelledError

import pytest

from evenkeel_dashboard.frame.reading_pool import ReadingPool


def always() -> bool:
    return True


@pytest.fixture
def gate() -> threading.Event:
    """An event that blocks the pool's only thread."""
    return threading.Event()


def test_readings_that_were_not_begun_are_dropped_when_the_page_is_left(
    gate: threading.Event,
) -> None:
    pool, ran, has_begun = ReadingPool(at_once=1, at_most=9), [], threading.Event()

    def read_first() -> bool:
        has_begun.set()
        return gate.wait(120)

    first = pool.begin("a", always, read_first)
    assert has_begun.wait(120)
    left = [pool.begin("a", always, lambda: ran.append("a")) for _ in range(3)]
    other = pool.begin("b", always, lambda: ran.append("b"))
    assert pool.leave("a") == 3
    gate.set()
    assert first() is True
    other()
    assert ran == ["b"]
    with pytest.raises(CancelledError):
        left[0]()
    assert pool.leave("a") == 0


def test_a_reading_whose_page_was_closed_meanwhile_is_dropped(gate: threading.Event) -> None:
    pool, ran = ReadingPool(at_once=1, at_most=9), []
    pool.begin("a", always, lambda: gate.wait(120))
    is_open = [True]
    closed = pool.begin("b", lambda: is_open[0], lambda: ran.append("b"))
    is_open[0] = False
    gate.set()
    with pytest.raises(CancelledError):
        closed()
    assert ran == []


def test_without_a_place_the_page_reads_when_it_needs_the_answer(gate: threading.Event) -> None:
    pool, readers = ReadingPool(at_once=1, at_most=2), []
    held = [pool.begin("a", always, lambda: gate.wait(120)) for _ in range(2)]
    third = pool.begin("a", always, lambda: readers.append(threading.current_thread()))
    assert readers == []
    third()
    assert readers == [threading.current_thread()]
    gate.set()
    assert [wait() for wait in held] == [True, True]
    # The places are free again.
    pool.begin("a", always, lambda: readers.append(threading.current_thread()))()
    assert readers[1] is not threading.current_thread()


def test_a_failure_reaches_who_waits() -> None:
    def fail() -> None:
        raise ValueError("no store")

    with pytest.raises(ValueError, match="no store"):
        ReadingPool(at_once=1, at_most=2).begin("a", always, fail)()
