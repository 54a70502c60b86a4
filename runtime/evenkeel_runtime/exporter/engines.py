"""Processes engine steps in the exporter: ledgers, `/why`, `/metrics` and stored runs."""

from __future__ import annotations

import logging
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

import zmq

from evenkeel.error_guard import ErrorGuard
from evenkeel.errors import ConfigurationError
from evenkeel.otlp_sender import open_sender
from evenkeel_runtime.exporter.energy import EnergyMeter
from evenkeel_runtime.exporter.explainer import MAX_BYTES, MAX_REQUESTS, Explainer
from evenkeel_runtime.exporter.in_flight_export import InFlightExport
from evenkeel_runtime.exporter.nvml import open_counters
from evenkeel_runtime.exporter.step_export import StepExport
from evenkeel_runtime.exporter.step_reader import StepReader
from evenkeel_runtime.exporter.why_answers import WhyAnswers, WhyStore
from evenkeel_runtime.wire.in_flight import SharedInFlight
from evenkeel_runtime.wire.snapshot import SharedSnapshot

if TYPE_CHECKING:
    from evenkeel_runtime.wire.frames import ExporterConfig

logger = logging.getLogger(__name__)

_SNAPSHOT_INTERVAL_S = 0.5
_EXPORT_INTERVAL_S = 1.0
_GAUGES_INTERVAL_S = 5.0


class EngineTelemetry:
    """Runs alongside the export of request spans, and stops with it.

    Args:
        config: The exporter's configuration.

    Attributes:
        explainer: Explains finished requests.
    """

    def __init__(self, config: ExporterConfig) -> None:
        self._config = config
        self._reader = _start_reader(config)
        store = WhyStore()
        self.explainer = Explainer(self._reader, store)
        self._answers = _start_answers(config.why_address, store)
        self._snapshot = SharedSnapshot(config.snapshot_fd) if config.snapshot_fd >= 0 else None
        self._steps: StepExport | None = None
        if self._reader is not None:
            send = open_sender(config.target)
            self._steps = StepExport(self._reader, config.target, config.model, send)
        self._gauges = _open_gauges(config)
        self._errors = ErrorGuard(logger.error, "cannot update /metrics: %r")
        self._should_stop = threading.Event()
        # Several threads: a hanging collector must not make `/metrics` stale.
        self._threads = [
            threading.Thread(target=work, name=f"evenkeel-{name}", daemon=True)
            for name, work in (
                ("figures", self._show_figures),
                ("runs", self._send_runs),
                ("gauges", self._send_gauges),
            )
        ]

    def __enter__(self) -> Self:
        """Start."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Send the last runs of steps and remove the sockets; the server has exited by now."""
        self._should_stop.set()
        for thread in self._threads:
            thread.join()
        if self._answers is not None:
            self._answers.close()
        if self._reader is not None:
            self._reader.close()
        if self._config.steps_address is not None:
            folder = Path(self._config.steps_address.removeprefix("ipc://")).parent
            shutil.rmtree(folder, ignore_errors=True)

    def _show_figures(self) -> None:
        while not self._should_stop.wait(_SNAPSHOT_INTERVAL_S):
            self._write_snapshot()

    def _send_runs(self) -> None:
        if self._steps is None:
            return
        while not self._should_stop.wait(_EXPORT_INTERVAL_S):
            self._steps.export()
        self._steps.export()

    def _send_gauges(self) -> None:
        if self._gauges is None:
            return
        while not self._should_stop.wait(_GAUGES_INTERVAL_S):
            self._gauges.export()

    def _write_snapshot(self) -> None:
        if self._snapshot is None:
            return
        dropped = 0 if self._steps is None else self._steps.num_dropped
        try:
            self._snapshot.write(self.explainer.read_snapshot(dropped))
        except Exception as error:
            self._errors.record(error)


def _open_gauges(config: ExporterConfig) -> InFlightExport | None:
    target = config.target.for_metrics()
    if target is None or config.in_flight_fd < 0:
        return None
    return InFlightExport(SharedInFlight(config.in_flight_fd).read, target, open_sender(target))


def _start_reader(config: ExporterConfig) -> StepReader | None:
    if config.steps_address is None:
        return None
    meters = {}
    for engine, gpus in config.gpus.items():
        if (read := open_counters(gpus)) is not None:
            meters[engine] = EnergyMeter(read)
    reader = StepReader(config.steps_address, MAX_BYTES, MAX_REQUESTS, meters)
    try:
        reader.start()
    except ConfigurationError as error:
        logger.warning("recording requests without ledgers: %s", error)
        return None
    return reader


def _start_answers(address: str | None, store: WhyStore) -> WhyAnswers | None:
    if address is None:
        return None
    answers = WhyAnswers(address, store)
    try:
        answers.start()
    except zmq.ZMQError as error:
        logger.warning("/why is unavailable: %s", error)
        return None
    return answers
