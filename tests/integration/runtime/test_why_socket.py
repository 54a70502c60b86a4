"""Questions about requests over the real socket, from the server's side to the exporter's."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evenkeel_runtime.exporter.why_answers import WAIT_S, WhyAnswers, WhyStore
from evenkeel_runtime.request.why import NoAnswerError, WhyClient
from tests.fixtures.manual_clock import ManualClock

DIVERGED = {"at_token": 3, "own_tokens": [1, 2], "its_tokens": []}


def answer(request_id: str) -> dict[str, Any]:
    return {
        "request_id": request_id,
        "without": [],
        "prefix_cache": {"evicted": None, "diverged": dict(DIVERGED)},
    }


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/why"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The time of the exporter's side; the server's side has all that a busy machine takes."""
    clock = ManualClock()
    monkeypatch.setattr("evenkeel_runtime.exporter.why_answers.monotonic", clock)
    monkeypatch.setattr("evenkeel_runtime.request.why._TIMEOUT_S", 120.0)
    return clock


@pytest.fixture
def store(address: str) -> Iterator[WhyStore]:
    store = WhyStore()
    answers = WhyAnswers(address, store)
    answers.start()
    yield store
    answers.close()


@pytest.fixture
async def client(address: str) -> AsyncIterator[WhyClient]:
    client = WhyClient(address)
    yield client
    client.close()


async def test_who_asks_for_what_is_unknown_does_not_keep_others_waiting(
    client: WhyClient, store: WhyStore, clock: ManualClock
) -> None:
    store.put("known", None, answer("known"))
    unknown = asyncio.create_task(client.ask("unknown", None))
    # It is asked first, and answered last.
    await asyncio.sleep(0)
    assert await client.ask("known", None) is not None
    assert not unknown.done()
    while not unknown.done():
        clock.now_s += WAIT_S
        await asyncio.sleep(0.01)
    assert unknown.result() is None


async def test_a_request_that_ends_meanwhile_is_answered(
    client: WhyClient, store: WhyStore, clock: ManualClock
) -> None:
    asked = asyncio.create_task(client.ask("late", "acme"))
    await asyncio.sleep(0.2)
    store.put("late", "acme", answer("late"))
    found = await asked
    assert found is not None and found["request_id"] == "late"


@pytest.mark.parametrize("may_show", [True, False])
async def test_the_text_of_prompts_is_shown_only_where_it_may_be(
    address: str, store: WhyStore, may_show: bool
) -> None:
    store.put("r", None, answer("r"))
    decode = (lambda tokens: f"text of {tokens}") if may_show else None
    with closing(WhyClient(address, decode=decode)) as client:
        found = await client.ask("r", None)
    assert found is not None
    text = {"own_text": "text of [1, 2]"} if may_show else {}
    assert found["prefix_cache"]["diverged"] == {"at_token": 3} | text


async def test_an_exporter_that_is_gone_is_said(client: WhyClient) -> None:
    with pytest.raises(NoAnswerError):
        await client.ask("r", None)
