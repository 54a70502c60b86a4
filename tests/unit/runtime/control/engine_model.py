"""A model of vLLM's continuous batching, in simulated time, with control before it or without.

A step lets every running request decode one token and spends what is left of its tokens on
prompts; it takes a fixed time, more for each running request, and more for each prompt token.
Control is the real one, with its own
gate, forecasts and ladder; only the clock and the engine are modelled.
"""

import asyncio
import heapq
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evenkeel_runtime.control.admission import AdmissionControl
from evenkeel_runtime.control.config import ControlConfig
from evenkeel_runtime.control.visit import RefusedError, Visit
from evenkeel_runtime.wire.caller import Caller

TOKENS_PER_STEP, SLOTS = 2048, 256


@dataclass(frozen=True, slots=True)
class Machine:
    """What a step takes in seconds: at least, more for each request, more for each prompt token.

    From the first to the second second of `stall` steps take as many times as its third number.
    """

    step_s: float
    per_sequence_s: float
    per_prompt_token_s: float
    stall: tuple[float, float, float] = (0.0, 0.0, 1.0)


# Of the order of the demo model on two cores. On the second a larger batch brings nearly nothing:
# what it was measured like where its cores are slow.
BATCHING = Machine(0.004, 0.00025, 0.00002)
COMPUTING = Machine(0.002, 0.0008, 0.0001)


@dataclass(frozen=True, slots=True)
class Kind:
    """What the requests of a class are like."""

    limit_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(slots=True)
class Simulated:
    """One request: when it came, and what became of it."""

    at_s: float
    slo_class: str
    kind: Kind
    ttft_s: float | None = None
    end_s: float | None = None
    refused: str | None = None
    prompt_left: int = 0
    output_left: int = 0
    order: tuple[float, ...] = ()
    visit: Visit | None = None

    @property
    def is_good(self) -> bool:
        """Whether it was answered in full, its first token within the limit of its class."""
        return (
            self.end_s is not None and self.ttft_s is not None and self.ttft_s <= self.kind.limit_s
        )


@dataclass
class Engine:
    """The engine's queue and its running requests."""

    machine: Machine = BATCHING
    waiting: list[tuple[tuple[float, ...], int, Simulated]] = field(default_factory=list)
    running: list[Simulated] = field(default_factory=list)
    num_added: int = 0

    def add(self, request: Simulated, *order: float) -> None:
        request.prompt_left = request.kind.prompt_tokens
        request.output_left = request.kind.output_tokens
        self.num_added += 1
        heapq.heappush(self.waiting, (order, self.num_added, request))

    def step(self, now_s: float, longest_chunk: int) -> tuple[float, list[Simulated]]:
        """Return when the step that begins now ends, and the requests that are over then."""
        budget = TOKENS_PER_STEP
        prompt_tokens = 0
        emitting = []
        for request in self.running:
            chunk = min(request.prompt_left or 1, budget, longest_chunk)
            budget -= chunk
            prompt_tokens += self._advance(request, chunk, emitting)
        while self.waiting and budget > 0 and len(self.running) < SLOTS:
            request = heapq.heappop(self.waiting)[2]
            self.running.append(request)
            chunk = min(request.prompt_left, budget, longest_chunk)
            budget -= chunk
            prompt_tokens += self._advance(request, chunk, emitting)
        step_s = self.machine.step_s
        step_s += self.machine.per_sequence_s * len(self.running)
        step_s += self.machine.per_prompt_token_s * prompt_tokens
        from_s, to_s, factor = self.machine.stall
        end_s = now_s + step_s * (factor if from_s <= now_s < to_s else 1.0)
        for request in emitting:
            request.output_left -= 1
            if request.ttft_s is None:
                request.ttft_s = end_s - request.at_s
            if not request.output_left:
                request.end_s = end_s
        over = [request for request in self.running if request.end_s is not None]
        self.running = [request for request in self.running if request.end_s is None]
        return end_s, over

    @staticmethod
    def _advance(request: Simulated, chunk: int, emitting: list[Simulated]) -> int:
        if not request.prompt_left:
            if chunk:
                emitting.append(request)
            return 0
        request.prompt_left -= chunk
        if not request.prompt_left:
            emitting.append(request)
        return chunk


def make_load(
    kinds: Mapping[str, Kind], shares: Mapping[str, float], rate: float, seconds: float, seed: int
) -> list[Simulated]:
    """Return Poisson arrivals of these shares."""
    random_ = random.Random(seed)
    at_s, load = 0.0, []
    names, weights = list(shares), list(shares.values())
    while (at_s := at_s + random_.expovariate(rate)) < seconds:
        name = random_.choices(names, weights)[0]
        load.append(Simulated(at_s, name, kinds[name]))
    return load


def sustainable(
    kinds: Mapping[str, Kind], shares: Mapping[str, float], machine: Machine = BATCHING
) -> float:
    """Return the requests per second that 16 clients get through, each asking again at once."""
    engine, now_s, done, number = Engine(machine), 0.0, 0, 0
    random_ = random.Random(1)
    names, weights = list(shares), list(shares.values())

    def ask() -> None:
        nonlocal number
        number += 1
        name = random_.choices(names, weights)[0]
        engine.add(Simulated(now_s, name, kinds[name]), number)

    for _ in range(16):
        ask()
    while now_s < 20:
        now_s, over = engine.step(now_s, TOKENS_PER_STEP)
        done += len(over)
        for _ in over:
            ask()
    return done / now_s


def simulate(
    load: Sequence[Simulated], config: ControlConfig | None, machine: Machine = BATCHING
) -> None:
    """Serve a load to its end; without a configuration, in the order of arrival."""

    async def run() -> None:
        _Simulation(load, config, machine).run()

    asyncio.run(run())


class _Simulation:
    def __init__(
        self, load: Sequence[Simulated], config: ControlConfig | None, machine: Machine
    ) -> None:
        self.now_s = 0.0
        self.engine = Engine(machine)
        self.coming = sorted(load, key=lambda request: request.at_s)[::-1]
        self.held: list[Simulated] = []
        self.control = (
            None if config is None else AdmissionControl(config, SLOTS, clock=lambda: self.now_s)
        )
        self.ticked_s = 0.0

    def run(self) -> None:
        while self.coming or self.held or self.engine.waiting or self.engine.running:
            self._arrive()
            if not self.engine.waiting and not self.engine.running:
                self.now_s = self.coming[-1].at_s if self.coming else self.now_s + 0.1
                self._let_in()
                continue
            ratio = 1.0 if self.control is None else self.control.limits.prefill_ratio
            self.now_s, over = self.engine.step(self.now_s, int(TOKENS_PER_STEP * ratio))
            for request in self.engine.running + over:
                visit = request.visit
                if visit is not None and request.ttft_s is not None and not visit.has_first_token:
                    assert self.control is not None
                    self.control.record_first_token(visit)
            for request in over:
                if request.visit is not None:
                    assert self.control is not None
                    self.control.leave(request.visit, 0)
            self._let_in()
            if self.control is not None and self.now_s - self.ticked_s >= 1:
                self.ticked_s = self.now_s
                self.control.tick()

    def _arrive(self) -> None:
        now_s = self.now_s
        while self.coming and self.coming[-1].at_s <= now_s:
            request = self.coming.pop()
            if self.control is None:
                self.engine.add(request, request.at_s)
                continue
            # Control sees it when it comes, not at the end of the step.
            self.now_s = request.at_s
            visit = self.control.arrive(Caller(slo_class=request.slo_class), 0)
            request.visit = visit
            visit.is_streamed = True
            try:
                self.control.queue(visit)
                self.held.append(request)
            except RefusedError as error:
                request.refused = error.reason
                self.control.leave(visit, 0)
            self._let_in()
        self.now_s = now_s

    def _let_in(self) -> None:
        if self.control is None:
            return
        held, self.held = self.held, []
        for request in held:
            visit = request.visit
            assert visit is not None and visit.ticket is not None
            if visit.ticket.is_inside:
                self.control.enter(visit)
                self.engine.add(request, visit.priority)
            elif visit.ticket.was_pushed_out:
                request.refused = self.control.push_out(visit).reason
                self.control.leave(visit, 0)
            elif self.now_s - request.at_s > self.control.longest_wait_s(visit):
                request.refused = self.control.give_up(visit).reason
                self.control.leave(visit, 0)
            else:
                self.held.append(request)
