"""Run control alongside the server: one tick per second, file reloads, a record of each step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import time_ns

from evenkeel.error_guard import ErrorGuard
from evenkeel.spans import (
    CONTROL_AFTER,
    CONTROL_BAD_AFTER,
    CONTROL_BAD_BEFORE,
    CONTROL_BEFORE,
    CONTROL_BURN_AFTER,
    CONTROL_BURN_BEFORE,
    CONTROL_CHANGE,
    CONTROL_GOOD_AFTER,
    CONTROL_GOOD_BEFORE,
    CONTROL_IS_DRY_RUN,
    CONTROL_LEVEL,
    CONTROL_LEVER,
    CONTROL_REASON,
    SPAN_CONTROL,
    AttributeValue,
)
from evenkeel.watched_file import WatchedFile
from evenkeel_runtime.control.admission import AdmissionControl
from evenkeel_runtime.control.config import ControlConfig, ControlMode, Limits
from evenkeel_runtime.control.costs import Costs
from evenkeel_runtime.control.ladder import ClassCounts, LeverLimits, LimitChange

logger = logging.getLogger(__name__)

TICK_S = 1.0
LEVER_MODE = "mode"
_NUM_HOLDERS = 20

SendEvent = Callable[[str, Mapping[str, AttributeValue], int, int], None]


@dataclass(frozen=True, slots=True)
class _Pending:
    """A step whose effect is not known yet."""

    change: LimitChange
    before: ClassCounts
    is_dry_run: bool
    start_ns: int
    # On control's clock: the wall clock may be set.
    due_s: float


@dataclass(frozen=True, slots=True)
class Places:
    """Places in the engine.

    Attributes:
        urgent: For urgent requests.
        patient: For those that can be in time and are due later.
        late: For those that are late or probably will be.
    """

    urgent: int
    patient: int
    late: int


@dataclass(frozen=True, slots=True)
class FirstTokenCounts:
    """First tokens of one class in the last window.

    Attributes:
        good: In time.
        bad: Late or refused.
    """

    good: int
    bad: int


@dataclass(frozen=True, slots=True)
class LastChange:
    """The last step taken.

    Attributes:
        lever: What was changed.
        reason: Why.
    """

    lever: str
    reason: str


@dataclass(frozen=True, slots=True)
class KvUse:
    """The engine's KV cache, and what requests with a share of it hold.

    Attributes:
        num_tokens: Tokens that fit into it; 0 if unknown.
        held: Tokens by owner, for those who hold the most.
        waiting: Requests that wait for a share.
    """

    num_tokens: int
    held: dict[str, int]
    waiting: int


@dataclass(frozen=True, slots=True)
class OwnerLimits:
    """The limits of one tenant, session or route.

    Attributes:
        context_tokens: Tokens of a prompt and its answer; null without a limit.
        kv_share: Share of the KV cache of all its requests; null without a limit.
        draft_tokens: Longest draft; null without a limit.
    """

    context_tokens: int | None
    kv_share: float | None
    draft_tokens: int | None


@dataclass(frozen=True, slots=True)
class ControlState:
    """The state of control, as returned by `GET /control`.

    Attributes:
        mode: Whether control acts.
        level: Ladder steps in force.
        limits: The resulting limits on vLLM's settings.
        burn: The highest burn rate over all classes.
        capacity: Places for urgent requests; null unless control acts.
        places: Places by kind of request; null unless control acts.
        inside: Requests in the engine.
        waiting: Requests at the gate, by class.
        classes: First tokens in the last window, by class.
        last_change: The last step taken; null before the first.
        kv_cache: The engine's KV cache, and what requests with a share of it hold.
        owner_limits: The limits of tenants, sessions and routes in the control file.
    """

    mode: ControlMode
    level: int
    limits: LeverLimits
    burn: float
    capacity: int | None
    places: Places | None
    inside: int
    waiting: dict[str, int]
    classes: dict[str, FirstTokenCounts]
    last_change: LastChange | None
    kv_cache: KvUse
    owner_limits: dict[str, OwnerLimits]


class ControlService:
    """Ticks, reloads and records.

    Args:
        control: The control hook to drive.
        file: The control file, checked in each tick, so that `mode = "off"` in it is the kill
            switch.
        send_event: Receives the events, like `evenkeel_runtime.serve.events.EventSender.send`.
    """

    def __init__(
        self, control: AdmissionControl, file: WatchedFile[ControlConfig], send_event: SendEvent
    ) -> None:
        self.control = control
        self._file = file
        self._send_event = send_event
        self._errors = ErrorGuard(
            logger.error,
            "a control tick failed, control continues; further failures are only counted: %r",
        )
        self._pending: list[_Pending] = []
        self._last_change: LimitChange | None = None

    async def run(self) -> None:
        """Tick until cancelled; errors never stop it."""
        while True:
            await asyncio.sleep(TICK_S)
            self._tick_safely()

    def _tick_safely(self) -> None:
        """Tick once; count errors, and log only the first, because ticks are frequent."""
        try:
            self.tick()
        except Exception as error:
            self._errors.record(error)
            self.control.counts.errors = self._errors.num_errors

    def tick(self) -> None:
        """Reload the file if it changed, take a step if one is due, record observed effects."""
        self._reload()
        change = self.control.tick()
        if change is not None:
            self._report_change(change)
        while self._pending and self._pending[0].due_s <= self.control.now_s():
            self._record(self._pending.pop(0))

    def close(self) -> None:
        """Record the steps whose effect is not fully observed yet."""
        for pending in self._pending:
            self._record(pending)
        self._pending.clear()

    def describe(self) -> ControlState:
        """Return the current state of control."""
        control, config = self.control, self.control.config
        room = control.gate.room if config.mode is ControlMode.ACT else None
        last = self._last_change
        return ControlState(
            mode=config.mode,
            level=control.level,
            limits=control.limits,
            burn=round(control.burn(), 3),
            capacity=None if room is None else room.urgent,
            places=None if room is None else Places(room.urgent, room.patient, room.late),
            inside=control.gate.num_inside,
            waiting=dict(control.gate.count_waiting()),
            classes={
                name: FirstTokenCounts(count.num_good, count.num_bad)
                for name, count in sorted(control.read().items())
            },
            last_change=None if last is None else LastChange(last.lever, last.reason),
            kv_cache=_describe_kv(control.costs),
            owner_limits={
                name: OwnerLimits(each.context_tokens, each.kv_share, each.draft_tokens)
                for name, each in _name_limits(config).items()
                if (each.context_tokens, each.kv_share, each.draft_tokens) != (None, None, None)
            },
        )

    def _report_change(self, change: LimitChange) -> None:
        config = self.control.config
        self._last_change = change
        is_switch = change.lever == LEVER_MODE
        # A switch takes effect also where it ends in a dry run.
        is_dry_run = config.mode is ControlMode.DRY_RUN and not is_switch
        logger.warning(
            "control %s: %s %s -> %s, reason: %s",
            "switched" if is_switch else "would act" if is_dry_run else "acts",
            change.lever,
            change.before,
            change.after,
            change.reason,
        )
        due_s = self.control.now_s() + config.window_s
        self._pending.append(_Pending(change, self._count(), is_dry_run, time_ns(), due_s))

    def _count(self) -> ClassCounts:
        """Return the window's counts over all classes."""
        found = self.control.read().values()
        return ClassCounts(sum(r.num_good for r in found), sum(r.num_bad for r in found))

    def _record(self, pending: _Pending) -> None:
        change = pending.change
        after = self._count()
        attributes: dict[str, AttributeValue] = {
            CONTROL_CHANGE: f"{change.lever} {change.before} -> {change.after}",
            CONTROL_LEVER: change.lever,
            CONTROL_LEVEL: change.level,
            CONTROL_BEFORE: change.before,
            CONTROL_AFTER: change.after,
            CONTROL_REASON: change.reason,
            CONTROL_IS_DRY_RUN: pending.is_dry_run,
            CONTROL_BURN_BEFORE: change.burn,
            CONTROL_BURN_AFTER: self.control.burn(),
            CONTROL_GOOD_BEFORE: pending.before.num_good,
            CONTROL_BAD_BEFORE: pending.before.num_bad,
            CONTROL_GOOD_AFTER: after.num_good,
            CONTROL_BAD_AFTER: after.num_bad,
        }
        end_ns = max(time_ns(), pending.start_ns)
        self._send_event(SPAN_CONTROL, attributes, pending.start_ns, end_ns)

    def _reload(self) -> None:
        config = self._file.reload()
        if config is None:
            return
        before = self.control.config.mode
        self.control.configure(config)
        if config.mode is not before:
            change = LimitChange(
                0, LEVER_MODE, before.value, config.mode.value, "control file", 0.0
            )
            self._report_change(change)


def _describe_kv(costs: Costs) -> KvUse:
    held = sorted(costs.shares.held().items(), key=lambda item: -item[1])[:_NUM_HOLDERS]
    names = {" ".join(owner).replace("\0", " "): tokens for owner, tokens in held}
    return KvUse(costs.cache.num_tokens, names, costs.shares.count_waiting())


def _name_limits(config: ControlConfig) -> dict[str, Limits]:
    named: dict[str, Limits] = {"tenant": config.tenant, "session": config.session}
    named |= {f"tenant {name}": each for name, each in config.tenants.items()}
    return named | {f"route {name}": each for name, each in config.routes.items()}
