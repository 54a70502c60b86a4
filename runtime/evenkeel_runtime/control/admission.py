"""The control hook: decide whether and when each request goes to the engine.

Classes order the gate and vLLM's own queue; quotas bound tenants and sessions; a request is shed if
its turn cannot come in time; the ladder reacts to a burning budget. Everything here runs on the
server's event loop.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from time import monotonic

from evenkeel_runtime.control.config import ControlConfig, ControlMode
from evenkeel_runtime.control.costs import BYTES_PER_TOKEN, Costs
from evenkeel_runtime.control.gate import Gate, GateFullError, Room, Ticket
from evenkeel_runtime.control.ladder import ClassCounts, Ladder, LeverLimits, LimitChange
from evenkeel_runtime.control.pace import (
    FOR_PATIENT,
    FOR_URGENT,
    ActiveLimits,
    ConcurrencyLimit,
    FirstTokens,
)
from evenkeel_runtime.control.prefixes import UNKNOWN_CACHE, KvCache
from evenkeel_runtime.control.quota import Quotas
from evenkeel_runtime.control.visit import ControlCounts, RefusedError, Visit
from evenkeel_runtime.control.window import SlidingWindow
from evenkeel_runtime.wire.caller import Caller
from evenkeel_runtime.wire.limits import EngineLimits, LimitsFile

logger = logging.getLogger(__name__)

# Refusals that count as late first tokens.
_FOR_LOAD = frozenset({"shed", "queue_deadline"})
TOO_MANY_REQUESTS = 429
UNAVAILABLE = 503
_MAX_NAMES_WARNED = 20
# Shed a request at once if the gate would have to run this much faster than its recent best.
_SHED_MARGIN = 2.0
# If even urgent requests are held back, others get this share of their places: a running request
# keeps its place, so the next urgent one would find none.
_OTHERS_RATIO = 0.75
_UNLIMITED = 1 << 30


class AdmissionControl:
    """Admission and the ladder of one server.

    Args:
        config: The control configuration.
        num_slots: Requests that vLLM runs at a time; the gate's capacity if `max_active` is not
            configured.
        limits_file: File from which the engine process reads its limits.
        clock: Monotonic seconds.
        cache: The engine's KV cache.
    """

    def __init__(
        self,
        config: ControlConfig,
        num_slots: int,
        limits_file: LimitsFile | None = None,
        clock: Callable[[], float] = monotonic,
        cache: KvCache = UNKNOWN_CACHE,
    ) -> None:
        self._num_slots = num_slots
        self._limits_file = limits_file
        self._clock = clock
        self._gate = Gate(Room.for_all(num_slots), clock=clock)
        self._shadow = Gate(Room.for_all(num_slots), clock=clock)
        self._first_tokens = FirstTokens()
        self._active_limits = ActiveLimits()
        self._shortest_s = math.inf
        self._patient = ConcurrencyLimit(num_slots, FOR_PATIENT)
        self._urgent = ConcurrencyLimit(num_slots, FOR_URGENT)
        self._visits: dict[int, Visit] = {}
        self._unknown: set[str] = set()
        self.counts = ControlCounts()
        self.config = config
        self._ladder = Ladder(config, clock())
        self._window = SlidingWindow(config.window_s)
        self._quotas = Quotas(config)
        self.costs = Costs(config, cache)
        self._apply()

    def configure(self, config: ControlConfig) -> None:
        """Apply a new configuration.

        Requests inside stay inside and keep counting; quota usage is kept; ladder steps with the
        same meaning stay in force, unless the mode changes.
        """
        now_s = self._clock()
        self._ladder.configure(config, now_s)
        self._window.resize(config.window_s)
        self._quotas.configure(config, now_s)
        self._first_tokens.keep(config.classes)
        for visit in self._visits.values():
            visit.keeps_order = config.mode is not ControlMode.ACT
            if not visit.is_refused:
                self._quotas.join(visit.accounts, visit.tenant, visit.session, now_s)
        self.config = self.costs.config = config
        self._apply()

    @property
    def level(self) -> int:
        """Ladder steps in force (in a dry run: that would be)."""
        return self._ladder.level

    @property
    def limits(self) -> LeverLimits:
        """The limits at the current level."""
        return self._ladder.limits

    def now_s(self) -> float:
        """Return the time on control's clock."""
        return self._clock()

    @property
    def gate(self) -> Gate:
        """The gate."""
        return self._gate

    def arrive(self, caller: Caller, size_bytes: int) -> Visit:
        """Start tracking a request that has arrived and is within its quotas.

        Args:
            caller: The caller.
            size_bytes: Size of its body, by which its prompt is estimated until `measure`.

        Raises:
            RefusedError: If a quota is used up.
        """
        now_s = self._clock()
        name = self._find_class(caller.slo_class)
        tenant, session = caller.tenant or "", caller.session_id
        limit_s = self.config.classes[name].ttft_s
        due_s = now_s + limit_s + self.config.longer_s(limit_s, size_bytes / BYTES_PER_TOKEN)
        visit = Visit(name, now_s, now_s + limit_s, due_s, tenant, session)
        overdrawn = self._quotas.check(tenant, session, now_s)
        if overdrawn is not None:
            message = f"quota exhausted for this {overdrawn.owner}"
            self.refuse(visit, TOO_MANY_REQUESTS, "quota", message, overdrawn.wait_s)
        else:
            visit.accounts = self._quotas.begin(tenant, session, now_s)
        visit.owners = self.costs.find_owners(caller)
        visit.keeps_order = self.config.mode is not ControlMode.ACT
        self._visits[id(visit)] = visit
        return visit

    def _record_limit(self, limit_s: float) -> None:
        """Record a request; if the shortest active limit changes, measure and resize anew."""
        now_s = self._clock()
        self._active_limits.record(limit_s, now_s)
        shortest_s = self._active_limits.shortest_s(now_s)
        if shortest_s == self._shortest_s:
            return
        self._shortest_s = shortest_s
        # Patient requests keep waiting: letting all of them in at once would make every request
        # late.
        self._patient.discard_samples()
        self._urgent.begin()
        self._resize()

    def queue(self, visit: Visit) -> Ticket:
        """Queue a visit for a place in the engine; its ticket reports when it may enter.

        Raises:
            RefusedError: If its turn cannot come before its queue deadline, or the queue is full.
        """
        known = self.config.classes.get(visit.slo_class)
        if known is not None and not visit.is_refused:
            self._record_limit(known.ttft_s)
        if self.config.mode is ControlMode.DRY_RUN:
            # The shadow gate only counts what it would refuse.
            with suppress(RefusedError):
                visit.shadow = None if visit.is_refused else self._join(self._shadow, visit)
            visit.ticket = self._gate.arrive(visit.slo_class, visit.due_s)
        else:
            visit.ticket = self._join(self._gate, visit)
        if not visit.ticket.is_inside and visit.queued_s is None:
            visit.queued_s = self._clock()
        return visit.ticket

    def _join(self, gate: Gate, visit: Visit) -> Ticket:
        wait_s = gate.least_wait_s(visit.due_s)
        if wait_s > _SHED_MARGIN * self.longest_wait_s(visit):
            raise self._shed(visit, f"the wait would be {wait_s:.0f} s or more", wait_s)
        known = self.config.classes.get(visit.slo_class)
        limit_s = math.inf if known is None else known.ttft_s
        latest_s = visit.late_s - self._first_tokens.least_s(visit.slo_class)
        try:
            return gate.arrive(visit.slo_class, visit.due_s, limit_s, latest_s)
        except GateFullError as error:
            raise self._shed(visit, str(error), wait_s) from error

    def push_out(self, visit: Visit) -> RefusedError:
        """Refuse a request that another one displaced from the full queue."""
        return self._shed(visit, "the queue is full", self.longest_wait_s(visit))

    def _shed(self, visit: Visit, reason: str, wait_s: float) -> RefusedError:
        who = f"a request of class {visit.slo_class}"
        message = f"overloaded; {who} would miss its deadline: {reason}"
        return self.turn_away(visit, UNAVAILABLE, "shed", message, wait_s)

    def longest_wait_s(self, visit: Visit) -> float:
        """Return how long a visit may wait at the gate; 0 if its class no longer exists."""
        known = self.config.classes.get(visit.slo_class)
        return 0.0 if known is None else known.longest_wait_s

    def left_s(self, visit: Visit) -> float:
        """Return how much longer a visit may wait, for a share and for its turn together."""
        longest_s = self.longest_wait_s(visit)
        if visit.queued_s is None:
            return longest_s
        return max(0.0, longest_s - (self._clock() - visit.queued_s))

    def enter(self, visit: Visit) -> None:
        """Count a request whose turn has come, and how long it waited."""
        visit.entered_s = self._clock()
        if visit.queued_s is not None:
            visit.gate_s = visit.entered_s - visit.queued_s
        self.counts.admitted[visit.slo_class] += 1

    def give_up(self, visit: Visit) -> RefusedError:
        """Refuse a request that has waited as long as its class allows."""
        longest_s = self.longest_wait_s(visit)
        message = f"no capacity within {longest_s:g} s for a request of class {visit.slo_class}"
        return self.turn_away(visit, UNAVAILABLE, "queue_deadline", message, longest_s)

    def record_first_token(self, visit: Visit) -> None:
        """Count a first token as in time or late."""
        visit.has_first_token = True
        now_s = self._clock()
        self._window.add(visit.slo_class, is_good=now_s <= visit.late_s, now_s=now_s)
        known = self.config.classes.get(visit.slo_class)
        if visit.entered_s is not None and known is not None:
            took_s = now_s - visit.entered_s
            self._first_tokens.record(visit.slo_class, took_s)
            self._learn(known.ttft_s, took_s)

    def _record_given_up(self, visit: Visit, now_s: float) -> None:
        """Count a late first token that its client did not wait for."""
        self._window.add(visit.slo_class, is_good=False, now_s=now_s)
        known = self.config.classes.get(visit.slo_class)
        took_s = 0.0 if visit.entered_s is None else now_s - visit.entered_s
        # It would have taken longer, but by how much is unknown.
        if known is not None and took_s > known.ttft_s:
            self._learn(known.ttft_s, took_s)

    def _learn(self, limit_s: float, took_s: float) -> None:
        """Adapt the places to the time from a turn to its first token."""
        if limit_s <= self._shortest_s:
            sample = (took_s / limit_s, self._gate.num_inside)
            if any([limit.record(*sample) for limit in (self._patient, self._urgent)]):
                self._resize()

    def leave(
        self, visit: Visit, tokens: int, cached: int | None = None, answer: float | None = None
    ) -> None:
        """Count a finished request and charge `tokens` to its quotas.

        Args:
            visit: The visit.
            tokens: Tokens of its prompts and its answers.
            cached: Prompt tokens that the engine found in its cache; None if unknown.
            answer: Mean length of its answers, in tokens; None if none is complete.
        """
        self._visits.pop(id(visit), None)
        with ExitStack() as ends:
            # In reverse order, and each even if another fails: none may keep what it holds.
            if visit.cost is not None and visit.entered_s is not None and tokens:
                ends.callback(self.costs.record_end, visit.cost, cached)
            if visit.claim is not None:
                ends.callback(self.costs.shares.leave, visit.claim, answer)
            ends.callback(visit.end_accounts, tokens)
            ends.callback(self._leave_shadow, visit)
            if visit.ticket is not None:
                ends.callback(self._gate.leave, visit.ticket)
            is_served = not visit.is_refused or self.config.mode is ControlMode.DRY_RUN
            if is_served and visit.is_overdue(self._clock()):
                self._record_given_up(visit, self._clock())

    def _leave_shadow(self, visit: Visit) -> None:
        """Count what a dry run's queue would have done to a finished or abandoned request."""
        shadow, visit.shadow = visit.shadow, None
        if shadow is None:
            return
        waited_s = self._clock() - visit.arrived_s
        if self.config.mode is ControlMode.DRY_RUN and not shadow.is_inside:
            if shadow.was_pushed_out:
                self._count_refusal(visit, "shed")
            elif waited_s > self.longest_wait_s(visit):
                self._count_refusal(visit, "queue_deadline")
        self._shadow.leave(shadow)

    def tick(self) -> LimitChange | None:
        """Let in who may enter, check the burn rate, take at most one step; return that step."""
        self._gate.let_in()
        self._shadow.let_in()
        self._give_up_in_shadow()
        if self.config.mode is ControlMode.OFF:
            return None
        change = self._ladder.tick(self.read(), self._clock())
        if change is not None:
            self.counts.changes[change.lever] += 1
            self._apply()
        return change

    def _give_up_in_shadow(self) -> None:
        """Remove requests from a dry run's queue that would have been refused by now."""
        now_s = self._clock()
        for visit in self._visits.values():
            shadow = visit.shadow
            if shadow is None or shadow.is_inside:
                continue
            if shadow.was_pushed_out or now_s - visit.arrived_s > self.longest_wait_s(visit):
                self._leave_shadow(visit)

    def read(self) -> dict[str, ClassCounts]:
        """Return the window's counts by class."""
        now_s = self._clock()
        overdue = Counter(v.slo_class for v in self._visits.values() if v.is_overdue(now_s))
        counts = self._window.read(overdue, now_s)
        return {name: r for name, r in counts.items() if name in self.config.classes}

    def burn(self) -> float:
        """Return the highest burn rate over all classes."""
        return self._ladder.burn(self.read())

    def _find_class(self, name: str | None) -> str:
        if name is None or name in self.config.classes:
            return name or self.config.default_class
        self.counts.unknown_classes += 1
        if name not in self._unknown and len(self._unknown) < _MAX_NAMES_WARNED:
            self._unknown.add(name)
            logger.warning(
                "request names an SLO class that is not configured, treated as %s: class=%s",
                self.config.default_class,
                name,
            )
        return self.config.default_class

    def refuse(
        self, visit: Visit, status: int, reason: str, message: str, wait_s: float | None
    ) -> None:
        """Refuse a request; in a dry run only count it."""
        if self.config.mode is ControlMode.ACT:
            raise self.turn_away(visit, status, reason, message, wait_s)
        if self.config.mode is ControlMode.DRY_RUN:
            self._count_refusal(visit, reason)

    def turn_away(
        self, visit: Visit, status: int, reason: str, message: str, wait_s: float | None
    ) -> RefusedError:
        """Count a refusal, and return the error to raise."""
        self._count_refusal(visit, reason)
        return RefusedError(status, reason, message, wait_s)

    def _count_refusal(self, visit: Visit, reason: str) -> None:
        """Count a request that is refused (in a dry run: would be), and refund its quotas."""
        if visit.is_refused:
            return
        visit.is_refused = True
        name = visit.slo_class
        if self.config.mode is ControlMode.DRY_RUN:
            self.counts.would_refuse[name, reason] += 1
        else:
            self.counts.refused[name, reason] += 1
            if reason in _FOR_LOAD:
                self._window.add(name, is_good=False, now_s=self._clock())
        visit.refund()

    def _apply(self) -> None:
        """Apply the ladder's limits; none in a dry run."""
        acts = self.config.mode is ControlMode.ACT
        limits = self.limits if acts else LeverLimits()
        for limit in (self._patient, self._urgent):
            limit.resize(self.config.max_active or self._num_slots)
        self._resize()
        self.costs.change_shares(acts=acts)
        if self._limits_file is not None:
            self._limits_file.write(EngineLimits(limits.prefill_ratio, limits.draft_ratio))

    def _resize(self) -> None:
        """Set the gate's capacity; in a dry run, the shadow gate's, and all requests enter."""
        urgent = others = self._urgent.num
        if not self._urgent.is_unrestricted:
            others = math.ceil(_OTHERS_RATIO * urgent)
        patient = min(self._patient.num, others)
        room = Room(urgent, patient, late=others, urgent_s=self._shortest_s)
        self._shadow.resize(room)
        acts = self.config.mode is ControlMode.ACT
        self._gate.resize(room if acts else Room.for_all(_UNLIMITED))
