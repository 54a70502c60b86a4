"""Keeps one engine's recent steps and requests in bounded memory, and builds their ledgers."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from evenkeel_runtime.exporter.energy import EnergyMeter
from evenkeel_runtime.exporter.engine_account import EngineAccount
from evenkeel_runtime.exporter.engine_records import (
    EngineRecord,
    charge_requests,
    engine_seconds,
)
from evenkeel_runtime.exporter.step_runs import StepRuns
from evenkeel_runtime.exporter.step_totals import StepTotals
from evenkeel_runtime.ledger.attribution import (
    Ledger,
    PrefixUse,
    RequestTimes,
    charge,
    find_aftermath,
)
from evenkeel_runtime.ledger.step_cost_model import FloatArray, StepCost, StepCostModel
from evenkeel_runtime.ledger.step_costs import PricedSteps, price
from evenkeel_runtime.ledger.timeline import EngineRequest, Steps, lay_out
from evenkeel_runtime.wire.steps import (
    ENTRY_TYPE,
    STEP_TYPE,
    Admitted,
    Arrived,
    Batch,
    EntryArray,
    Left,
    RequestEvent,
    StepArray,
)

# vLLM makes an id unique with a random suffix (InputProcessor.assign_request_id) and numbers the
# sequences of one request (ParentRequest.get_child_info): `<number>_<id>-<8 hex digits>`.
_SUFFIX = re.compile(r"-[0-9a-f]{8}\Z")
_SEQUENCE = re.compile(r"\A\d+_")
_NO_END_NS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The steps of one batch."""

    table: StepArray
    entries: EntryArray
    features: FloatArray
    previous_end_ns: int
    end_ns: int
    follows_loss: bool
    num_bytes: int


class StepHistory:
    """Recent steps and requests of one engine.

    Args:
        max_bytes: Limit on step records in bytes; the oldest are dropped first, and time that only
            they covered is charged to `unobserved`.
        max_requests: Limit on requests; the oldest are dropped first.
        meter: Measures the energy of the engine's GPUs; None if it is not known.
    """

    def __init__(self, max_bytes: int, max_requests: int, meter: EnergyMeter | None = None) -> None:
        self._max_bytes = max_bytes
        self._max_requests = max_requests
        self._chunks: deque[_Chunk] = deque()
        self._num_bytes = 0
        self._known: dict[int, EngineRecord] = {}
        # Requests whose end may be among lost records.
        self._doubtful: set[int] = set()
        self._numbers_of_id: dict[str, list[int]] = {}
        self._next_sequence = 0
        self._lost_steps = 0
        self._end_ns = 0
        self._model = StepCostModel()
        self.totals = StepTotals()
        self.runs = StepRuns()
        self.account = EngineAccount()
        self.meter = meter
        self.num_steps = 0
        self.num_live = 0
        self.num_lost_batches = 0

    @property
    def lost_steps(self) -> int:
        """Number of steps that the engine could not send."""
        return self._lost_steps

    @property
    def latest(self) -> StepArray | None:
        """The last step, as a row of `STEP_TYPE`; None before the first."""
        return self._chunks[-1].table[-1] if self._chunks else None

    @property
    def cost(self) -> StepCost:
        """The step-cost model as fitted so far."""
        return self._model.read()

    def add(self, batch: Batch) -> None:
        """Add one batch."""
        missed = batch.sequence - self._next_sequence
        if missed < 0:
            missed = 0  # The engine was restarted: discard everything known of it.
            self._forget_all()
            self._lose_records()
        follows_loss = missed > 0 or batch.lost_steps > self._lost_steps
        self.num_lost_batches += missed
        self._next_sequence = batch.sequence + batch.num_joined
        self._lost_steps = batch.lost_steps
        if follows_loss:
            self._lose_records()
        for event in batch.events:
            self._apply_event(event)
        if len(batch.steps):
            self._add_steps(batch, follows_loss)

    def find_request(
        self, request_id: str, times: RequestTimes, num_sequences: int
    ) -> EngineRequest | None:
        """Return the engine's records of a request, or None if it cannot be identified.

        Args:
            request_id: Its id in the API, which vLLM's internal ids contain.
            times: Its times; an earlier request may have had the same id.
            num_sequences: Its number of sequences (`n`).
        """
        found = [
            known
            for number in self._numbers_of_id.get(request_id, ())
            if times.arrival_ns <= (known := self._known[number]).queued_ns <= times.end_ns
        ]
        if not found or len(found) != num_sequences:
            return None
        admitted = [known.admitted for known in found if known.admitted is not None]
        cached = min((a.cached_tokens for a in admitted), default=0)
        # Of a prompt's several sequences, the one with the fewest cached tokens explains the miss.
        worst = max(admitted, key=lambda a: a.lost_tokens, default=Admitted(0, 0, 0))
        left = [known.left_ns for known in found]
        return EngineRequest(
            numbers=tuple(known.number for known in found),
            queued_ns=min(known.queued_ns for known in found),
            cached_tokens=cached,
            lost_tokens=max((a.cached_tokens + a.lost_tokens for a in admitted), default=0)
            - cached,
            prompt_tokens=found[0].prompt_tokens,
            block_tokens=worst.block_tokens,
            evicted_ns=worst.evicted_ns,
            evicted_by=worst.evicted_by,
            left_ns=max(t for t in left if t is not None) if None not in left else None,
        )

    def has_left(self, request: EngineRequest) -> bool:
        """Return whether all of its steps have arrived."""
        return all(self._known[number].left_ns is not None for number in request.numbers)

    def price(self, from_ns: int, to_ns: int) -> PricedSteps:
        """Return the priced steps that may overlap an interval, for all requests within it."""
        return price(self._select(from_ns, to_ns), self.cost)

    def charge(
        self,
        times: RequestTimes,
        request: EngineRequest,
        max_rivals: int,
        priced: PricedSteps | None = None,
    ) -> Ledger:
        """Return the ledger of a request found by `find_request`.

        Args:
            times: Its times.
            request: The request.
            max_rivals: Maximum number of rivals to return.
            priced: Result of `price` for an interval that contains its own; computed if None.
        """
        span = request_span(times, request)
        if priced is None:
            priced = self.price(*span)
        ledger = charge(times, request, priced.between(*span), max_rivals)
        rivals = tuple(
            replace(rival, request_id=self.api_id(rival.number)) for rival in ledger.rivals
        )
        by = request.evicted_by
        prefix = PrefixUse(
            prompt_tokens=request.prompt_tokens,
            cached_tokens=request.cached_tokens,
            lost_tokens=request.lost_tokens,
            block_tokens=request.block_tokens,
            evicted_ns=request.evicted_ns or None,
            evicted_by=None if by is None else self.api_id(by),
        )
        aftermath = late = None
        if times.client_left_ns is not None:
            late = priced.between(times.client_left_ns, span[1]).steps
            aftermath = find_aftermath(late, request, times.client_left_ns)
        return replace(
            ledger,
            rivals=rivals,
            prefix=prefix,
            aftermath=aftermath,
            engine=engine_seconds(
                [self._known[number] for number in request.numbers], late, priced.cost
            ),
        )

    def _lose_records(self) -> None:
        self.account.lose_records()
        if self.meter is not None:
            self.meter.lose_records()
        for known in self._known.values():
            if known.left_ns is None:
                known.has_lost_steps = True
                self._doubtful.add(known.number)

    def _apply_event(self, event: RequestEvent) -> None:
        self._update_requests(event)
        self.account.add_event(event, self.num_live)
        if self.meter is not None:
            self.meter.add_event(event, self.num_live)

    def _update_requests(self, event: RequestEvent) -> None:
        match event:
            case Arrived(number, time_ns, prompt_tokens, request_id, tenant):
                self._known[number] = EngineRecord(
                    number, request_id, time_ns, prompt_tokens, tenant
                )
                self.num_live += 1
                for name in api_ids(request_id):
                    self._numbers_of_id.setdefault(name, []).append(number)
                while len(self._known) > self._max_requests:
                    self._forget(next(iter(self._known)))
            case Admitted(number):
                if number in self._known:
                    self._known[number].admitted = event
                    self.totals.add_prompt(self._known[number].prompt_tokens, event.cached_tokens)
            case Left(number, time_ns):
                if number in self._known:
                    self._known[number].left_ns = time_ns
                    self.num_live -= 1

    def _forget(self, number: int) -> None:
        known = self._known.pop(number)
        if known.left_ns is None:
            self.num_live -= 1
        for name in api_ids(known.request_id):
            numbers = self._numbers_of_id[name]
            numbers.remove(number)
            if not numbers:
                del self._numbers_of_id[name]

    def _forget_all(self) -> None:
        self._chunks.clear()
        self._known.clear()
        self._doubtful.clear()
        self._numbers_of_id.clear()
        self._num_bytes = self._lost_steps = self.num_live = 0

    def _add_steps(self, batch: Batch, follows_loss: bool) -> None:
        steps = lay_out(batch.steps, batch.entries, previous_end_ns=self._end_ns)
        did_work = (steps.table["prefill_tokens"] > 0) | (steps.table["decode_tokens"] > 0)
        seconds = (steps.end_ns - steps.begin_ns) / 1e9
        self._model.observe(steps.features[did_work], seconds[did_work])
        self.totals.add_steps(steps)
        self.runs.add(steps, self.api_id)
        used_j = None if self.meter is None else self.meter.of_steps(steps)
        shared_s, shared_j = charge_requests(steps, self.cost, self._known, used_j)
        self.account.add_steps(steps, shared_s, self._end_ns)
        if self.meter is not None:
            self.meter.add_steps(steps, shared_j)
        if self._doubtful:
            self._let_doubtful_leave(steps)
        end_ns = int(steps.end_ns[-1])
        num_bytes = batch.steps.nbytes + batch.entries.nbytes + steps.features.nbytes
        self._chunks.append(
            _Chunk(
                batch.steps,
                batch.entries,
                steps.features,
                self._end_ns,
                end_ns,
                follows_loss,
                num_bytes,
            )
        )
        self._end_ns = end_ns
        self._num_bytes += num_bytes
        self.num_steps += len(steps)
        while self._num_bytes > self._max_bytes and len(self._chunks) > 1:
            self._num_bytes -= self._chunks.popleft().num_bytes
            # Nothing before the oldest remaining step is known.
            self._chunks[0] = replace(self._chunks[0], follows_loss=True)

    def _let_doubtful_leave(self, steps: Steps) -> None:
        """Release requests that a step with every request of the engine does not have."""
        last = steps.table[-1]
        entries = steps.entries[len(steps.entries) - int(last["num_entries"]) :]
        is_in = (entries["prefill_tokens"] > 0) | (entries["decode_tokens"] > 0)
        if int(last["num_waiting"]) or int(is_in.sum()) != int(last["num_running"]):
            return
        for number in self._doubtful.difference(entries["request"].tolist()):
            known = self._known.get(number)
            if known is not None and known.left_ns is None:
                self._apply_event(Left(number, int(steps.begin_ns[-1])))
        self._doubtful.clear()

    def _select(self, from_ns: int, to_ns: int) -> Steps:
        """Return the timeline of the steps that may overlap an interval."""
        chosen: list[_Chunk] = []
        for chunk in reversed(self._chunks):
            if chunk.end_ns < from_ns:
                break
            if int(chunk.table["start_ns"][0]) <= to_ns:
                chosen.append(chunk)
        if not chosen:
            return lay_out(np.zeros(0, STEP_TYPE), np.zeros(0, ENTRY_TYPE))
        chosen.reverse()
        # Joined as bytes: concatenating record arrays makes NumPy compare their types one by one.
        table = np.frombuffer(b"".join(chunk.table.data for chunk in chosen), STEP_TYPE)
        follows_loss = np.zeros(len(table), dtype=np.bool_)
        at = 0
        for chunk in chosen:
            follows_loss[at] = chunk.follows_loss
            at += len(chunk.table)
        entries = np.frombuffer(b"".join(chunk.entries.data for chunk in chosen), ENTRY_TYPE)
        features = np.concatenate([chunk.features for chunk in chosen])
        return lay_out(table, entries, follows_loss, chosen[0].previous_end_ns, features)

    def api_id(self, number: int) -> str | None:
        """Return the API id of a request by its number, or None if unknown."""
        known = self._known.get(number)
        return None if known is None else _SUFFIX.sub("", known.request_id)


def request_span(times: RequestTimes, request: EngineRequest) -> tuple[int, int]:
    """Return the interval from arrival until both server and scheduler are done with a request.

    It is open-ended if the client disconnected and the scheduler has not released the request yet.
    """
    if times.client_left_ns is not None and request.left_ns is None:
        return times.arrival_ns, _NO_END_NS
    return times.arrival_ns, max(times.end_ns, request.left_ns or 0)


def api_ids(request_id: str) -> tuple[str, ...]:
    """Return the possible API ids for an internal id, without duplicates.

    These are the id itself (randomisation can be switched off), the id without vLLM's random
    suffix, and the id without the sequence number.
    """
    without_suffix = _SUFFIX.sub("", request_id)
    names = (request_id, without_suffix, _SEQUENCE.sub("", without_suffix))
    return tuple(dict.fromkeys(names))
