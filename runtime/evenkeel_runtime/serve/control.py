"""Set up the control hook: file, gate, engine limits, metrics and events."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY

from evenkeel.errors import ConfigurationError
from evenkeel.otlp_target import OtlpTarget
from evenkeel.private_files import FOLDER_MODE
from evenkeel.settings import hand_down
from evenkeel.watched_file import WatchedFile
from evenkeel_runtime.adapter.request_limits import count_slots, read_kv_cache
from evenkeel_runtime.control.admission import AdmissionControl
from evenkeel_runtime.control.config import read_control_file
from evenkeel_runtime.control.metrics import ControlMetrics
from evenkeel_runtime.control.service import ControlService
from evenkeel_runtime.serve.events import EventSender
from evenkeel_runtime.serve.settings import RuntimeSettings
from evenkeel_runtime.wire.limits import LIMITS_VARIABLE, LimitsFile, limits_path

logger = logging.getLogger(__name__)


def open_control(settings: RuntimeSettings) -> ControlHook | None:
    """Return the control hook; None without a control file.

    Raises:
        ConfigurationError: If the file is wrong, or the data folder cannot be written to.
    """
    if settings.control_file is None:
        return None
    read_control_file(settings.control_file)
    try:
        settings.data_dir.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        return ControlHook(settings.control_file, settings.data_dir)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write to the data folder {settings.data_dir}: {error.strerror}"
        ) from error


class ControlHook:
    """The control hook of one server, created before vLLM's engine starts; idle until it runs.

    Args:
        path: The control file.
        data_dir: Folder for the limits file that the engine process reads.
    """

    def __init__(self, path: Path, data_dir: Path) -> None:
        self._path = path
        self._limits_path = limits_path(data_dir.resolve())
        self._limits = LimitsFile.create(self._limits_path)
        self._service: ControlService | None = None
        self._events: EventSender | None = None
        hand_down(LIMITS_VARIABLE, str(self._limits_path))

    def start(self, engine: Any, target: OtlpTarget) -> ControlService:
        """Start admitting requests; runs on the server's event loop until `close`.

        Raises:
            ConfigurationError: If the file is wrong.
        """
        file = WatchedFile(self._path, read_control_file, logger)
        control = AdmissionControl(
            file.current,
            count_slots(engine),
            self._limits,
            cache=read_kv_cache(engine),
        )
        self._events = EventSender(target)
        service = ControlService(control, file, self._events.send)
        self._service = service
        # Keep a reference: the event loop holds tasks only weakly.
        self._task = asyncio.get_running_loop().create_task(service.run())
        REGISTRY.register(ControlMetrics(control))
        return service

    def close(self) -> None:
        """Record and send the remaining events."""
        if self._service is not None:
            self._service.close()
        if self._events is not None:
            self._events.close()
        self._limits_path.unlink(missing_ok=True)
