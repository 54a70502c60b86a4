"""Which requests of a run may share what the server keeps: prefixes, and answers as drafts."""

from typing import Any

import pytest

from evenkeel_evals.ask.client import Call, Reply
from evenkeel_evals.ask.recorded_run import RecordedRun
from evenkeel_evals.ask.run import CacheMode, RunOptions, ask_all
from evenkeel_evals.ask.schedule import interleave
from evenkeel_evals.ask.sides import Side

SIDE = Side("a", "http://h", "m", "p", "1", None, {})


class Listener:
    """A client that keeps the calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def ask(self, call: Call) -> Reply:
        self.calls.append(call)
        return Reply(0, 1, text="x")


@pytest.mark.parametrize(
    ("mode", "num_salts"), [(CacheMode.ISOLATED, 2), (CacheMode.COLD, 10), (CacheMode.SHARED, 1)]
)
async def test_no_repeat_finds_what_an_earlier_one_left(
    make_pair: Any, mode: CacheMode, num_salts: int
) -> None:
    items = [make_pair(i).item for i in range(5)]
    client: Any = Listener()
    options = RunOptions("run", concurrency=1, seed=0, cache=mode, warmup=0)
    planned = interleave(items, 0, num_repeats=3)
    await ask_all(client, (SIDE, SIDE), planned, options, RecordedRun(None), lambda *_: None)
    assert len(client.calls) == 30
    # Five items, three repeats, two sides: items of one repeat and side share their prefixes.
    by_salt: dict[str | None, list[str]] = {}
    for call in client.calls:
        by_salt.setdefault(call.cache_salt, []).append(call.session)
    if mode is CacheMode.SHARED:
        assert set(by_salt) == {None}
    else:
        assert len(by_salt) == 3 * num_salts
        assert all(len(set(sessions)) == 1 for sessions in by_salt.values())
