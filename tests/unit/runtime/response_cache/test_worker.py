"""What is given up leaves the queue, and nothing is queued without end."""

import asyncio
from collections.abc import Iterator
from threading import Event

import pytest

from evenkeel_runtime.response_cache.worker import Worker


class Gate:
    """Work that goes on until it is opened."""

    def __init__(self) -> None:
        self.begun, self.opened = Event(), Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.opened.wait(600)
        return "done"


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


async def begin(worker: Worker, gate: Gate) -> asyncio.Future[str]:
    running = worker.submit(gate)
    assert running is not None
    assert await asyncio.to_thread(gate.begun.wait, 120)
    return running


async def test_work_is_done_in_order_and_errors_come_back(gate: Gate) -> None:
    worker = Worker("test", 8, 60)
    running = await begin(worker, gate)
    order: list[int] = []
    later = [worker.submit(lambda n=n: order.append(n)) for n in range(3)]  # type: ignore[misc]
    broken = worker.submit(lambda: 1 // 0)
    gate.opened.set()
    assert await running == "done"
    for future in later:
        assert future is not None
        await future
    assert order == [0, 1, 2]
    assert broken is not None
    with pytest.raises(ZeroDivisionError):
        await broken
    worker.close()


async def test_a_full_queue_refuses_until_somebody_gives_up(gate: Gate) -> None:
    worker = Worker("test", 2, 60)
    running = await begin(worker, gate)
    done: list[str] = []
    first = worker.submit(lambda: done.append("first"))
    second = worker.submit(lambda: done.append("second"))
    assert first is not None and second is not None
    assert worker.submit(lambda: done.append("third")) is None
    first.cancel()
    await asyncio.sleep(0)  # The event loop hands the cancellation on.
    fourth = worker.submit(lambda: done.append("fourth"))
    assert fourth is not None
    gate.opened.set()
    await asyncio.gather(running, second, fourth)
    assert done == ["second", "fourth"]
    worker.close()


async def test_nothing_is_queued_behind_what_is_stuck(gate: Gate) -> None:
    worker = Worker("test", 8, 0.0)
    running = await begin(worker, gate)
    assert worker.submit(lambda: None) is None
    gate.opened.set()
    assert await running == "done"
    worker.close()


async def test_closing_drops_what_waits_and_refuses_more(gate: Gate) -> None:
    worker = Worker("test", 8, 60)
    running = await begin(worker, gate)
    waiting = worker.submit(lambda: "never")
    assert waiting is not None
    worker.close()
    assert worker.submit(lambda: None) is None
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.opened.set()
    assert await running == "done"
