"""Costs add up to the bill and a saving is predicted, on records of a small model of an engine.

The model serves every arrived request in every step: whole prompts at once, then a token, with
drafts, per step, at a fixed cost plus a cost per token and context. vLLM's own scheduler decides in
tests/integration/runtime/test_cost_ledger.py and bench/cost_ledger.py.
"""

import random
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pytest

from evenkeel.prices.price_file import IdleShare
from evenkeel_runtime.exporter.step_history import StepHistory
from evenkeel_runtime.ledger.attribution import RequestTimes
from evenkeel_runtime.ledger.engine_seconds import EngineSeconds
from evenkeel_runtime.wire.steps import Admitted, Arrived, Left, encode_batch
from tests.fixtures.engine_bill import HOUR, make_bill
from tests.fixtures.step_records import decode_batch
from tests.unit.runtime.wire.step_builder import MS, Part, Step

STATE = (0, 0, 0, 0, 0, 0, 250, 0, 0)
Requests = list[tuple[str, EngineSeconds | None]]


@dataclass(slots=True)
class Task:
    """One request of the model; times in milliseconds."""

    number: int
    tenant: str
    at_ms: float
    prompt: int
    answer: int
    drafts: int = 0
    leaves_ms: float = float("inf")
    computed: int = 0
    lost: int = 0
    emitted: int = 0

    @property
    def is_done(self) -> bool:
        return self.emitted >= self.answer


@dataclass(slots=True)
class Model:
    """The model of an engine with room for some tokens, and what the exporter makes of it."""

    tasks: Sequence[Task]
    lost_batches: Collection[int] = ()
    room_tokens: float = float("inf")
    past: StepHistory = field(default_factory=lambda: StepHistory(64 << 20, 50_000))
    requests: Requests = field(default_factory=list)
    busy_s: float = 0.0
    num_preempted: int = 0
    chosen: random.Random = field(default_factory=lambda: random.Random(3))

    def run(self) -> float:
        """Play all tasks; return the seconds from the first arrival to the end."""
        waiting, running, now, sequence = deque(self.tasks), list[Task](), 0.0, 0
        while waiting or running:
            now = now if running else max(now, waiting[0].at_ms)
            events: list[Arrived | Admitted | Left] = []
            while waiting and waiting[0].at_ms <= now:
                task = waiting.popleft()
                running.append(task)
                name = f"r{task.number}-deadbeef"
                at_ns = int(task.at_ms * MS)
                events.append(Arrived(task.number, at_ns, task.prompt, name, task.tenant))
                events.append(Admitted(task.number, 0, 0))
            self._preempt(running)
            parts = [self._part(task) for task in running]
            end = now + self._step_ms(parts)
            step = Step(now, end, parts, state=(len(running), *STATE[1:]))
            self.busy_s += (end - now) / 1e3
            gone = [task for task in running if task.is_done or task.leaves_ms <= end]
            events += [Left(task.number, int(end * MS)) for task in gone]
            running = [task for task in running if task not in gone]
            if sequence not in self.lost_batches:
                packed = [part.pack() for part in parts]
                data = encode_batch(0, sequence, 0, [step.pack(sequence)], packed, events)
                self.past.add(decode_batch(data))
            sequence += 1
            for task in gone:
                self._charge(task, end)
            now = end + 0.1
        return (now - 0.1 - self.tasks[0].at_ms) / 1e3

    def _preempt(self, running: Sequence[Task]) -> None:
        used = sum(task.computed for task in running)
        for task in reversed(running[1:]):
            if used > self.room_tokens and task.computed:
                used -= task.computed
                task.lost, task.computed = task.computed, 0
                self.num_preempted += 1

    def _part(self, task: Task) -> Part:
        context = task.computed
        if not context:
            tokens = task.prompt + task.emitted
            task.computed, task.emitted = tokens, task.emitted + 1
            part = Part(task.number, 0, tokens, min(task.lost, tokens), emitted=1)
            task.lost = 0
            return part
        accepted = self.chosen.randint(0, task.drafts)
        task.computed += 1 + accepted
        task.emitted += 1 + accepted
        return Part(task.number, context, 0, 0, 1, task.drafts, accepted, 1 + accepted)

    def _step_ms(self, parts: Sequence[Part]) -> float:
        own = sum(
            0.08 * p.prefill + (0.9 + 6e-5 * p.context) * p.decode + 0.2 * p.drafted for p in parts
        )
        return (4 + own) * self.chosen.lognormvariate(0, 0.02)

    def _charge(self, task: Task, end_ms: float) -> None:
        left_ns = int(task.leaves_ms * MS) if task.leaves_ms <= end_ms else None
        times = RequestTimes(int(task.at_ms * MS), int(end_ms * MS) + 1, client_left_ns=left_ns)
        request = self.past.find_request(f"r{task.number}", times, 1)
        engine = self.past.charge(times, request, 0).engine if request else None
        self.requests.append((task.tenant, engine))


def make_tasks(seconds: float, gap_ms: float, drafts: int = 0, leaving: float = 0) -> list[Task]:
    """Return the requests of two tenants."""
    chosen = random.Random(1)
    tasks: list[Task] = []
    at = 0.0
    while at < seconds * 1e3:
        prompt, answer = chosen.randint(50, 600), chosen.randint(10, 60)
        leaves = at + chosen.uniform(20, 200) if chosen.random() < leaving else float("inf")
        tenant = chosen.choice(("acme", "zeta"))
        tasks.append(Task(len(tasks), tenant, at, prompt, answer, drafts, leaves))
        at += chosen.expovariate(1 / gap_ms)
    return tasks


@pytest.mark.parametrize("lost", [(), range(300, 310)], ids=["all records", "a stretch lost"])
def test_requests_waste_and_idle_add_up_to_the_bill(lost: Sequence[int]) -> None:
    model = Model(make_tasks(50, gap_ms=150, drafts=2, leaving=0.15), lost, room_tokens=1200)
    wall_s = model.run()
    account = model.past.account.read(0)
    known = [engine for _, engine in model.requests if engine is not None]
    spent_s = sum(engine.spent_s for engine in known)
    assert model.num_preempted > 0
    assert sum(engine.wasted_s for engine in known) > 0.01 * spent_s
    assert account.idle_s > 0
    assert (account.unrecorded_s > 0) == bool(lost)
    assert account.total_s == pytest.approx(wall_s, rel=1e-3)
    # Seconds of requests whose records were lost are in no request's sum, and said to be so.
    nobodys_s = account.requests_s - spent_s
    assert (nobodys_s > 1e-6) == bool(lost)

    used = [
        (tenant, None if engine is None else engine.spent_s) for tenant, engine in model.requests
    ]
    owed = (wall_s - nobodys_s) * HOUR / 3600
    for idle in IdleShare:
        bill = make_bill(used, account, idle)
        assert bill.billed == pytest.approx(owed, rel=1e-3)
        assert bill.effective == pytest.approx(owed, rel=1e-3)
    # The last bill spreads the overhead over the tenants.
    assert sum(bill.of_tenant.values()) == pytest.approx(owed, rel=1e-3)
