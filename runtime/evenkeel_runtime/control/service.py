"""Runs control beside the server: a tick a second, the file watched, each step recorded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import time_ns
from typing import Any

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
from evenkeel_runtime.control.config import ControlConfig, ControlMode
from evenkeel_runtime.control.ladder import ClassCounts, LimitChange

logger = logging.getLogger(__name__)

TICK_S = 1.0
LEVER_MODE = "mode"

SendEvent = Callable[[str, Mapping[str, AttributeValue], int, int], None]


@dataclass(frozen=True, slots=True)
class _Pending:
    """A step whose effect is not known yet."""

    change: LimitChange
    before: ClassCounts
    is_dry_run: bool
    start_ns: int
    due_ns: int


class ControlService:
    """Ticks, reloads and records.

    Args:
        control: What it drives.
        file: The control file; looked at in each tick, so that `mode = "off"` in it is the kill
            switch.
        send_event: Takes the events, as `evenkeel_runtime.serve.events.EventSender.send` does.
    """

    def __init__(
        self, control: AdmissionControl, file: WatchedFile[ControlConfig], send_event: SendEvent
    ) -> None:
        self.control = control
        self._file = file
        self._send_event = send_event
        self._pending: list[_Pending] = []
        self._last_change: LimitChange | None = None

    async def run(self) -> None:
        """Tick until cancelled; an error of ours never ends it."""
        while True:
            await asyncio.sleep(TICK_S)
            self._tick_safely()

    def _tick_safely(self) -> None:
        """Tick; an error is counted, and the first is logged: there are ticks all day."""
        try:
            self.tick()
        except Exception:
            self.control.counts.errors += 1
            if self.control.counts.errors == 1:
                logger.exception("control failed in a tick, it goes on; later failures are counted")

    def tick(self) -> None:
        """Reload the file if it changed, take a step if one is due, record what is known."""
        self._reload()
        change = self.control.tick()
        if change is not None:
            self._report_change(change)
        now_ns = time_ns()
        while self._pending and self._pending[0].due_ns <= now_ns:
            self._record(self._pending.pop(0), now_ns)

    def close(self) -> None:
        """Record the steps whose effect is not fully seen."""
        now_ns = time_ns()
        for pending in self._pending:
            self._record(pending, now_ns)
        self._pending.clear()

    def describe(self) -> dict[str, Any]:
        """Return the state for `GET /control`."""
        control, config = self.control, self.control.config
        limits, room = control.limits, control.gate.room
        last = self._last_change
        return {
            "mode": config.mode.value,
            "level": control.level,
            "limits": {
                "prefill_ratio": limits.prefill_ratio,
                "draft_ratio": limits.draft_ratio,
            },
            "burn": round(control.burn(), 3),
            "capacity": room.urgent if config.mode is ControlMode.ACT else None,
            "places": {"urgent": room.urgent, "patient": room.patient, "late": room.late}
            if config.mode is ControlMode.ACT
            else None,
            "inside": control.gate.num_inside,
            "waiting": dict(control.gate.count_waiting()),
            "classes": {
                name: {"good": count.num_good, "bad": count.num_bad}
                for name, count in sorted(control.read().items())
            },
            "last_change": None if last is None else {"lever": last.lever, "reason": last.reason},
        }

    def _report_change(self, change: LimitChange) -> None:
        config = self.control.config
        self._last_change = change
        is_dry_run = config.mode is ControlMode.DRY_RUN
        logger.warning(
            "control %s: %s %s -> %s, because %s",
            "would act" if is_dry_run else "acts",
            change.lever,
            change.before,
            change.after,
            change.reason,
        )
        now_ns = time_ns()
        due_ns = now_ns + int(config.window_s * 1e9)
        self._pending.append(_Pending(change, self._count(), is_dry_run, now_ns, due_ns))

    def _count(self) -> ClassCounts:
        """Return what the window holds of all classes together."""
        found = self.control.read().values()
        return ClassCounts(sum(r.num_good for r in found), sum(r.num_bad for r in found))

    def _record(self, pending: _Pending, now_ns: int) -> None:
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
        self._send_event(SPAN_CONTROL, attributes, pending.start_ns, now_ns)

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
