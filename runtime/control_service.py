"""Runs control beside the server: a tick a second, the file watched, each step recorded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import time_ns
from typing import Any

from evenkeel.errors import ConfigurationError
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
from runtime.control import Control
from runtime.control_config import Mode, read_control_file
from runtime.control_ladder import Change, Reading

logger = logging.getLogger(__name__)

TICK_S = 1.0
LEVER_MODE = "mode"

SendEvent = Callable[[str, Mapping[str, AttributeValue], int, int], None]


@dataclass(frozen=True, slots=True)
class _Pending:
    """A step whose effect is not known yet."""

    change: Change
    before: Reading
    is_dry_run: bool
    start_ns: int
    due_ns: int


class ControlService:
    """Ticks, reloads and records.

    Args:
        control: What it drives.
        path: The control file; watched, so that `mode = "off"` in it is the kill switch.
        send_event: Takes the events, as `runtime.events.EventSender.send` does.
    """

    def __init__(self, control: Control, path: Path, send_event: SendEvent) -> None:
        self.control = control
        self._path = path
        self._send_event = send_event
        self._seen = _stamp(path)
        self._pending: list[_Pending] = []
        self._last_change: Change | None = None

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
            self._note(change)
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
            "capacity": room.urgent if config.mode is Mode.ACT else None,
            "places": {"urgent": room.urgent, "patient": room.patient, "late": room.late}
            if config.mode is Mode.ACT
            else None,
            "inside": control.gate.num_inside,
            "waiting": dict(control.gate.count_waiting()),
            "classes": {
                name: {"good": reading.num_good, "bad": reading.num_bad}
                for name, reading in sorted(control.read().items())
            },
            "last_change": None if last is None else {"lever": last.lever, "reason": last.reason},
        }

    def _note(self, change: Change) -> None:
        config = self.control.config
        self._last_change = change
        is_dry_run = config.mode is Mode.DRY_RUN
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

    def _count(self) -> Reading:
        """Return what the window holds of all classes together."""
        found = self.control.read().values()
        return Reading(sum(r.num_good for r in found), sum(r.num_bad for r in found))

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
        stamp = _stamp(self._path)
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            config = read_control_file(self._path)
        except ConfigurationError as error:
            logger.warning("the control file is not taken, the one before stays: %s", error)
            return
        before = self.control.config.mode
        self.control.configure(config)
        logger.info("control file read again: mode=%s", config.mode)
        if config.mode is not before:
            change = Change(0, LEVER_MODE, before.value, config.mode.value, "control file", 0.0)
            self._note(change)


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what changes when a file is written; None while it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
