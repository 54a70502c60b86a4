"""Requests in the engine that wait for a token, seen while they wait."""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from evenkeel_runtime.request.in_flight import OTHER_MODELS, InFlightWatch
from evenkeel_runtime.request.trace import EngineRun, EngineTimes
from evenkeel_runtime.serve.in_flight_metrics import InFlightMetrics
from evenkeel_runtime.wire.in_flight import FIRST_TOKEN, NEXT_TOKEN, SharedInFlight

S = 1_000_000_000
NOW = 1_000 * S


@pytest.fixture
def memory() -> Iterator[SharedInFlight]:
    with closing(SharedInFlight.create()) as memory:
        yield memory


@dataclass
class Times:
    num_generation_tokens: int
    first_token_ts: float
    last_token_ts: float
    scheduled_ts: float = 0.0


def run(*emission_s: float, submitted_s: float = 0.0, **more: Any) -> EngineRun:
    """Return a run whose tokens came at these seconds before now."""
    return EngineRun(
        more.pop("request_id", "r"), more.pop("model", "m"), None, None, True, 0, 0,
        submitted_ns=NOW - round(submitted_s * S),
        emission_ns=[NOW - round(ago * S) for ago in emission_s], **more,
    )  # fmt: skip


def watch(
    memory: SharedInFlight, runs: list[EngineRun], times: list[EngineTimes] | None = None
) -> InFlightWatch:
    found = [[each] for each in times or []]
    return InFlightWatch(memory, lambda: runs, lambda _: found, 10.0, lambda error: None)


# What waits for which token, how long, and whether it has stalled.
RUNS = {
    "tokens flow": (run(2, 1, 0.5), (), NEXT_TOKEN, 0.5, 0),
    "no token for long": (run(21, 20.5, 20), (), NEXT_TOKEN, 20, 1),
    "no first token yet": (run(submitted_s=3), (), FIRST_TOKEN, 3, 0),
    "no first token for long": (run(submitted_s=30), (), FIRST_TOKEN, 30, 1),
    "a slow model's own pace": (run(60, 40, 20), (), NEXT_TOKEN, 20, 0),
    "slower than ten of its own gaps": (run(104, 102, 100), (), NEXT_TOKEN, 100, 1),
    "the client does not read": (run(21, 20), [Times(40, 980, 999)], NEXT_TOKEN, 1, 0),
    "not streamed, tokens flow": (run(submitted_s=60), [Times(50, 950, 999)], NEXT_TOKEN, 1, 0),
    "not streamed, stalled": (run(submitted_s=60), [Times(9, 950, 960)], NEXT_TOKEN, 40, 1),
    "stalled, but for another with its id": (
        run(submitted_s=60),
        [Times(50, 950, 999), Times(9, 950, 960)],
        NEXT_TOKEN,
        40,
        1,
    ),
    "the engine has no token either": (run(submitted_s=60), [Times(0, 0, 0)], FIRST_TOKEN, 60, 1),
}


@pytest.mark.parametrize(
    ("one", "times", "waits_for", "waited_s", "stalled"), RUNS.values(), ids=RUNS
)
def test_stalls(
    memory: SharedInFlight,
    one: EngineRun,
    times: Any,
    waits_for: str,
    waited_s: float,
    stalled: int,
) -> None:
    found = watch(memory, [one], list(times)).read(NOW).models["m"]
    assert found.num_running == 1
    assert found.longest_s[waits_for] == pytest.approx(waited_s)
    assert found.num_stalled[waits_for] == stalled
    assert sum(found.num_stalled.values()) == stalled


def test_what_waits_outside_is_over_or_ours_is_no_request_in_flight(
    memory: SharedInFlight,
) -> None:
    runs = [
        run(submitted_s=60, is_at_gate=True),
        run(submitted_s=60, end_ns=NOW),
        run(submitted_s=60, response_cache="replay"),
    ]
    assert watch(memory, runs).read(NOW).models == {}


def test_a_model_that_is_idle_again_has_zeros(memory: SharedInFlight) -> None:
    runs = [run(30), run(20, model="adapter")]
    watching = watch(memory, runs)
    assert watching.read(NOW).models["m"].longest_s == {FIRST_TOKEN: 0.0, NEXT_TOKEN: 30.0}
    runs.clear()
    after = watching.read(NOW).models
    assert {model: each.num_running for model, each in after.items()} == {"m": 0, "adapter": 0}
    assert after["m"].longest_s == {FIRST_TOKEN: 0.0, NEXT_TOKEN: 0.0}


def test_models_are_bounded(memory: SharedInFlight) -> None:
    found = watch(memory, [run(1, model=f"m{n}") for n in range(1000)]).read(NOW).models
    assert len(found) == 65
    assert found[OTHER_MODELS].num_running == 936


def test_the_thread_writes_what_the_exporter_reads(memory: SharedInFlight) -> None:
    waiting = run()
    waiting.submitted_ns = monotonic_ns() - 60 * S
    watching = watch(memory, [waiting])
    watching.start()
    try:
        while (read := memory.read()) is None:
            threading.Event().wait(0.05)
    finally:
        watching.close()
    assert read.models["m"].num_stalled == {FIRST_TOKEN: 1, NEXT_TOKEN: 0}


def test_an_error_of_the_watch_is_recorded(memory: SharedInFlight) -> None:
    has_failed = threading.Event()
    odd: Any = SimpleNamespace()
    failing = InFlightWatch(
        memory, lambda: [odd], lambda _: [], 10.0, lambda error: has_failed.set()
    )
    failing.start()
    try:
        assert has_failed.wait(120)
    finally:
        failing.close()


def test_the_gauges(memory: SharedInFlight) -> None:
    registry = CollectorRegistry()
    registry.register(InFlightMetrics(lambda: watch(memory, [run(20)]).read(NOW)))
    labels = {"model": "m", "waits_for": "next_token"}
    get = registry.get_sample_value
    assert get("evenkeel_runtime_requests_in_flight", {"model": "m"}) == 1
    assert get("evenkeel_runtime_stalled_requests", labels) == 1
    assert get("evenkeel_runtime_longest_wait_seconds", labels) == pytest.approx(20)
