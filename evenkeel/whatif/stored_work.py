"""What the store has of engines' work: requests and steps of a part of a range, by engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from evenkeel.whatif.batching import Task

Row = Mapping[str, Any]


class EngineKey(NamedTuple):
    """One engine and its model: a rank of data parallelism of a server."""

    model: str
    service: str
    instance: str
    engine: int


@dataclass(frozen=True, slots=True)
class StoredWork:
    """What is stored of a contiguous part of a range; times are seconds since its begin.

    Attributes:
        from_s: From when on it is replayed.
        begin_s: From when on it counts; later than `from_s` if the replay has to warm up.
        end_s: Its end.
        requests: Rows of the query `engine_requests`, in the order of arrival.
        runs: Rows of the query `engine_runs`, in the order of time.
    """

    from_s: float
    begin_s: float
    end_s: float
    requests: Sequence[Row]
    runs: Sequence[Row]

    def without(self, tenant: str) -> StoredWork:
        """Return the same without the requests of a tenant."""
        return replace(self, requests=[r for r in self.requests if r["tenant"] != tenant])


def by_engine(work: StoredWork) -> tuple[dict[EngineKey, StoredWork], int]:
    """Return the work of each engine, and how many requests cannot be tied to one.

    The request's row names its server but not its engine. The steps with its prompt do, up to 16
    requests a step; with a single engine there is no need for it.
    """
    runs: dict[EngineKey, list[Row]] = defaultdict(list)
    for row in work.runs:
        runs[EngineKey(row["model"], row["service"], row["instance"], row["engine"])].append(row)
    engines_of: dict[str, list[EngineKey]] = defaultdict(list)
    for key in runs:
        engines_of[key.service].append(key)
    engine_of = {
        (key.service, name): key
        for key, rows in runs.items()
        for row in rows
        for name in row["prefilling_request_id"]
    }
    requests: dict[EngineKey, list[Row]] = defaultdict(list)
    num_untied = 0
    for row in work.requests:
        own = engine_of.get((row["service"], row["request_id"]))
        engines = [own] if own is not None else engines_of.get(row["service"], [])
        if len(engines) == 1:
            requests[engines[0]].append(row)
        else:
            num_untied += bool(engines)
    found = {key: replace(work, requests=requests[key], runs=rows) for key, rows in runs.items()}
    return found, num_untied


def tasks_of(work: StoredWork) -> list[Task]:
    """Return what the engine had to compute, in the order in which it began.

    Of requests that were in the engine before, it is what was left.
    """
    tasks = []
    for row in work.requests:
        task = _task_of(row)
        if row["time_s"] < work.from_s:
            task = _rest_of(task, row, work.from_s)
        tasks.append(task)
    # Those that were decoding have seats already.
    return sorted(tasks, key=lambda task: (task.arrival_s, task.cached + 1 < task.prompt))


def _task_of(row: Row) -> Task:
    prompt = max(row["input_tokens"] or 0, 1)
    cached = min(row["cached_tokens"] or 0, prompt - 1)
    more = max((row["output_tokens"] or 0) - 1, 0)
    # An accepted draft saves a step.
    steps = max(more - (row["accepted_tokens"] or 0), min(more, 1))
    if not steps:
        return Task(row["time_s"], prompt, cached, 0, shared=cached)
    drafted = row["drafted_tokens"] or 0
    return Task(row["time_s"], prompt, cached, steps, more / steps, drafted / steps, cached)


def _rest_of(task: Task, row: Row, from_s: float) -> Task:
    first_s = row["time_s"] + (row["ttft_s"] or 0.0)
    end_s = row["time_s"] + (row["e2e_s"] or 0.0)
    if first_s > from_s or end_s <= first_s:
        return task._replace(arrival_s=from_s)
    steps = round(task.steps * (end_s - from_s) / (end_s - first_s))
    context = task.prompt + int(task.growth * (task.steps - steps))
    return task._replace(arrival_s=from_s, prompt=context, cached=context - 1, steps=steps)
