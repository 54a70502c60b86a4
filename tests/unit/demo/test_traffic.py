"""What the demo's clients count, against a server on loopback that never ends an answer."""

import asyncio
import contextlib
import re
from types import SimpleNamespace

import pytest

from evenkeel_demo.questions import (
    NUM_POPULAR,
    POPULAR_ROUTE,
    GoldenQuestion,
    read_popular,
    stands_alone,
)
from evenkeel_demo.traffic import (
    CHATS_AT_ONCE,
    CROWD_S,
    CROWD_SIZES,
    ClientCounters,
    DemoPhase,
    Rates,
    Traffic,
    crowd_size,
)
from tests.fixtures.manual_clock import ManualClock

BEGINNING = b'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {"choices": []}\n\n'


async def _answer_without_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(BEGINNING)
        await reader.read()
    writer.close()


async def _counted_after_a_stop() -> tuple[ClientCounters, int]:
    """Return what was counted, and how many were still waiting when the traffic was stopped."""
    async with await asyncio.start_server(_answer_without_end, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        question = GoldenQuestion([{"role": "user", "content": "Where is my order?"}], "orders")
        traffic = Traffic(f"http://127.0.0.1:{port}", None, "Be brief.", [question])
        rates = (DemoPhase.HEALTHY, Rates(per_s=100))
        running = asyncio.create_task(traffic.run(lambda: rates))
        async with asyncio.timeout(120):
            while traffic.counters.in_flight < CHATS_AT_ONCE:
                await asyncio.sleep(0.01)
        # A hundred a second come, and go away again.
        await asyncio.sleep(0.5)
        num_waiting = traffic.counters.in_flight
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    return traffic.counters, num_waiting


def test_whoever_waits_when_the_traffic_stops_counts_as_cancelled() -> None:
    counters, num_waiting = asyncio.run(_counted_after_a_stop())
    assert counters.in_flight == 0
    assert counters.errors == 0
    assert counters.cancelled == counters.requests == num_waiting


def test_who_waits_for_an_answer_asks_nothing_else() -> None:
    _, num_waiting = asyncio.run(_counted_after_a_stop())
    assert num_waiting == CHATS_AT_ONCE


async def _asked_in_3_s(answer_s: float, num_questions: int = 20) -> int:
    """How many chats come that want to come a hundred times a second, after a warm-up.

    An answer of the warm-up takes `answer_s`, whatever the machine does meanwhile.
    """
    clock = ManualClock()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            assert length is not None
            await reader.readexactly(int(length[1]))
            clock.now_s += answer_s
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        question = GoldenQuestion([{"role": "user", "content": "Where is my order?"}], "orders")
        traffic = Traffic(f"http://127.0.0.1:{port}", None, "Be brief.", [question] * num_questions)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("evenkeel_demo.traffic.time", SimpleNamespace(monotonic=clock))
            await traffic.warm_up()
        rates = (DemoPhase.HEALTHY, Rates(per_s=100))
        running = asyncio.create_task(traffic.run(lambda: rates))
        await asyncio.sleep(3)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    return traffic.counters.requests


def test_a_slow_engine_is_asked_half_of_what_it_can_answer() -> None:
    """Eight at once take two seconds, so two a second may come; a fast one gets what is wanted."""
    num_slow, num_fast = (asyncio.run(_asked_in_3_s(answer_s)) for answer_s in (2.0 / 8, 0.0))
    assert 0 < num_slow < min(20, num_fast)


def test_with_few_questions_there_is_traffic_without_timing() -> None:
    assert asyncio.run(_asked_in_3_s(0.0, num_questions=2)) > 0


@pytest.mark.parametrize("long_prompt_s", [0.03, 0.07, 0.2, 0.5, 0.8])
def test_a_crowd_keeps_a_fast_and_a_slow_machine_as_long(long_prompt_s: float) -> None:
    assert CROWD_S <= crowd_size(long_prompt_s) * long_prompt_s < CROWD_S + long_prompt_s


@pytest.mark.parametrize(("long_prompt_s", "size"), [(0.0, CROWD_SIZES[1]), (60, CROWD_SIZES[0])])
def test_a_crowd_has_its_limits(long_prompt_s: float, size: int) -> None:
    assert crowd_size(long_prompt_s) == size


def test_popular_questions_come_in_many_wordings_with_one_answer() -> None:
    popular = read_popular()
    answers = {question.reference for question in popular}
    assert len(answers) == NUM_POPULAR
    assert len(popular) >= 5 * NUM_POPULAR
    assert len({question.messages[0]["content"] for question in popular}) == len(popular)
    assert {question.tag for question in popular} == {POPULAR_ROUTE}


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (
            GoldenQuestion(
                [{"role": "user", "content": "How long is the warranty?"}], "paraphrase"
            ),
            False,
        ),
        (GoldenQuestion([{"role": "user", "content": "How long is it?"}], POPULAR_ROUTE), True),
        (GoldenQuestion([{"role": "user", "content": "x" * 200}] * 2, "long-prompt"), True),
    ],
)
def test_a_chat_stays_within_the_models_context(question: GoldenQuestion, expected: bool) -> None:
    assert stands_alone(question) is expected
