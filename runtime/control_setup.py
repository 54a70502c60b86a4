"""Puts the control hook together: file, gate, limits on the engine, metrics, events."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY

from runtime import vllm_adapter
from runtime.control import Control
from runtime.control_config import read_control_file
from runtime.control_limits import LimitsFile
from runtime.control_metrics import ControlMetrics
from runtime.control_service import ControlService
from runtime.events import EventSender
from runtime.otlp_target import OtlpTarget


class ControlHook:
    """Control of one server; nothing is decided before vLLM's engine runs.

    Args:
        path: The control file.
        data_dir: Folder for the limits that the engine's process reads.
        args: vLLM's flags; priority scheduling and the middleware are switched on here.
    """

    def __init__(self, path: Path, data_dir: Path, args: argparse.Namespace) -> None:
        self._path = path
        self._limits_path = data_dir.resolve() / f"limits-{os.getpid()}"
        self._limits = LimitsFile.create(self._limits_path)
        self._service: ControlService | None = None
        self._events: EventSender | None = None
        vllm_adapter.enable_control(args, self._limits_path)

    def start(self, engine: Any, target: OtlpTarget) -> ControlService:
        """Begin to admit requests; runs on the server's event loop until `close`.

        Raises:
            ConfigurationError: If the file is wrong.
        """
        config = read_control_file(self._path)
        control = Control(config, vllm_adapter.num_slots(engine), self._limits)
        self._events = EventSender(target)
        service = ControlService(control, self._path, self._events.send)
        self._service = service
        # Kept, because the loop itself keeps only a weak reference to a task.
        self._task = asyncio.get_running_loop().create_task(service.run())
        REGISTRY.register(ControlMetrics(control))
        return service

    def close(self) -> None:
        """Record and send what is left."""
        if self._service is not None:
            self._service.close()
        if self._events is not None:
            self._events.close()
        self._limits_path.unlink(missing_ok=True)
