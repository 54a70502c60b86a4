"""Requests are tied to engines, and those that began before a range have their rest in it."""

from typing import Any

from evenkeel.whatif.batching import Task
from evenkeel.whatif.stored_work import EngineKey, StoredWork, by_engine, tasks_of


def request(time_s: float, name: str = "r", **more: Any) -> dict[str, Any]:
    usual = {
        "service": "s", "tenant": "a", "input_tokens": 100, "cached_tokens": None,
        "output_tokens": 11, "drafted_tokens": None, "accepted_tokens": None, "ttft_s": 2.0,
        "e2e_s": 12.0,
    }  # fmt: skip
    return {"time_s": time_s, "request_id": name, **usual, **more}


def run(engine: int, *names: str) -> dict[str, Any]:
    return {
        "model": "m", "service": "s", "instance": "i", "engine": engine,
        "prefilling_request_id": names,
    }  # fmt: skip


def stored(requests: list[dict[str, Any]], runs: list[dict[str, Any]]) -> StoredWork:
    return StoredWork(0.0, 0.0, 60.0, requests, runs)


def test_one_engine_has_all_requests_of_its_server() -> None:
    requests = [request(0.0), request(1.0, service="another server")]
    found, num_untied = by_engine(stored(requests, [run(0)]))
    assert {key: work.requests for key, work in found.items()} == {
        EngineKey("m", "s", "i", 0): requests[:1]
    }
    assert num_untied == 0


def test_of_several_engines_the_one_that_computed_the_prompt_has_it() -> None:
    requests = [request(0.0, "x"), request(1.0, "y"), request(2.0, "nowhere")]
    found, num_untied = by_engine(stored(requests, [run(0, "x"), run(1, "y"), run(0)]))
    assert [[r["request_id"] for r in work.requests] for work in found.values()] == [["x"], ["y"]]
    assert [len(work.runs) for work in found.values()] == [2, 1]
    assert num_untied == 1


def test_what_a_request_has_to_compute() -> None:
    cases = {
        "plain": (request(1.0), Task(1.0, 100, 0, 10)),
        "cached": (request(1.0, cached_tokens=64), Task(1.0, 100, 64, 10, shared=64)),
        "all cached: one token is computed": (
            request(1.0, cached_tokens=100), Task(1.0, 100, 99, 10, shared=99)
        ),
        "drafts": (
            request(1.0, drafted_tokens=20, accepted_tokens=5), Task(1.0, 100, 0, 5, 2.0, 4.0)
        ),
        "one token": (request(1.0, output_tokens=1), Task(1.0, 100, 0, 0)),
    }  # fmt: skip
    for name, (row, expected) in cases.items():
        assert tasks_of(stored([row], [])) == [expected], name


def test_what_began_before_has_its_rest_and_keeps_its_seat() -> None:
    decoding = request(-7.0)  # From -5 to 5: half of ten steps are left.
    queued = request(-1.0)  # Its first token is in the range.
    fresh = request(0.0)
    tasks = tasks_of(stored([queued, decoding, fresh], []))
    assert tasks[0] == Task(0.0, 105, 104, 5)
    assert tasks[1:] == [Task(0.0, 100, 0, 10)] * 2
