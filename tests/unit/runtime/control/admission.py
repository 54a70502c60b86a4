"""Admission control on a manual clock, for tests of it as a whole."""

import logging
from pathlib import Path
from typing import Any

from evenkeel.watched_file import WatchedFile
from evenkeel_runtime.control.admission import AdmissionControl
from evenkeel_runtime.control.config import (
    ControlConfig,
    SloClass,
    read_control_file,
)
from evenkeel_runtime.control.service import ControlService, SendEvent
from evenkeel_runtime.control.visit import Visit
from evenkeel_runtime.wire.caller import Caller
from tests.fixtures.manual_clock import ManualClock

CLASSES = {"interactive": SloClass(ttft_s=0.2), "batch": SloClass(ttft_s=30.0, target=0.9)}


def make(clock: ManualClock, **fields: Any) -> AdmissionControl:
    config = ControlConfig(classes=CLASSES, default_class="interactive", **fields)
    return AdmissionControl(config, num_slots=4, clock=clock)


def serve(control: AdmissionControl, path: Path, send_event: SendEvent) -> ControlService:
    """Return what reads the control file at `path` and records what control does."""
    file = WatchedFile(path, read_control_file, logging.getLogger("tests"))
    return ControlService(control, file, send_event)


def burn(control: AdmissionControl, clock: ManualClock, num_bad: int = 10) -> None:
    """Let so many interactive requests have a late first token."""
    for _ in range(num_bad):
        visit = control.arrive(Caller(slo_class="interactive"), 100)
        clock.now_s += 0.3
        control.record_first_token(visit)
        control.leave(visit, 10)


def crowd(
    control: AdmissionControl, clock: ManualClock, num: int, every_s: float = 0.5
) -> list[Visit]:
    """Let a queue of batch requests get a turn each `every_s`, and return those that wait."""
    visits = [control.arrive(Caller(slo_class="batch", tenant="crowd"), 100) for _ in range(num)]
    for visit in visits:
        control.queue(visit)
    for visit in visits[:40]:
        clock.now_s += every_s
        control.leave(visit, 0)
    return visits[40:]
