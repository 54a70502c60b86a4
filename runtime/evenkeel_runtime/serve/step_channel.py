"""The sockets that connect a server, its engine's step hook and its exporter process."""

from __future__ import annotations

import argparse
import logging
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenkeel.settings import hand_down
from evenkeel_runtime.adapter.vllm import Find, find_name, takes
from evenkeel_runtime.engine.settings import SOCKET_VARIABLE

logger = logging.getLogger(__name__)

SCHEDULER_CLASS = "evenkeel_runtime.adapter.scheduler.LedgerScheduler"
# It records steps, too, in addition to drafting.
SPECULATIVE_CLASS = "evenkeel_runtime.adapter.speculative_scheduler.SpeculativeScheduler"
# A missing hook's label in `evenkeel_runtime_missing_hooks_total`.
STEP_HOOK = "steps"
# Linux and the BSDs allow 108 and 104 bytes for a Unix socket path, terminator included.
_MAX_PATH_BYTES = 103


@dataclass(frozen=True, slots=True)
class StepChannel:
    """The sockets for step records and queries about them, in a private folder (0700).

    Attributes:
        folder: Holds the sockets, and nothing else.
    """

    folder: Path

    @property
    def steps_address(self) -> str:
        """The address that the engine's step hook sends its records to."""
        return f"ipc://{self.folder / 'steps'}"

    @property
    def why_address(self) -> str:
        """The address that the server queries for a request's ledger."""
        return f"ipc://{self.folder / 'why'}"

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def open_channel() -> StepChannel:
    """Create the folder, and export its socket's address to child processes.

    Raises:
        OSError: If it cannot be created, or its path is too long for a Unix socket.
    """
    folder = Path(tempfile.mkdtemp(prefix="evenkeel-"))
    channel = StepChannel(folder)
    if len(str(folder / "steps").encode()) > _MAX_PATH_BYTES:
        channel.close()
        raise OSError(f"{folder} is too long for a Unix socket; set TMPDIR to a shorter folder")
    hand_down(SOCKET_VARIABLE, channel.steps_address)
    return channel


def find_obstacle(args: argparse.Namespace, find: Find = find_name) -> str | None:
    """Return why this vLLM's steps cannot be recorded; None if they can.

    Args:
        args: vLLM's parsed flags.
        find: Returns a named attribute of a vLLM module, or None.
    """
    own: Any = getattr(args, "scheduler_cls", None)
    if own is not None and own not in (SCHEDULER_CLASS, SPECULATIVE_CLASS):
        return f"--scheduler-cls {own} replaces the step hook"
    scheduler = find("vllm.v1.core.sched.scheduler", "Scheduler")
    needs = {
        "Scheduler.add_request": takes(getattr(scheduler, "add_request", None), "request"),
        "Scheduler.schedule": callable(getattr(scheduler, "schedule", None)),
        "Scheduler.update_from_output": takes(
            getattr(scheduler, "update_from_output", None),
            "scheduler_output",
            "model_runner_output",
        ),
        "Scheduler.finish_requests": callable(getattr(scheduler, "finish_requests", None)),
        "AsyncScheduler": find("vllm.v1.core.sched.async_scheduler", "AsyncScheduler") is not None,
        "RequestStatus": find("vllm.v1.request", "RequestStatus") is not None,
        "SchedulerConfig.get_scheduler_cls": callable(
            getattr(find("vllm.config", "SchedulerConfig"), "get_scheduler_cls", None)
        ),
    }
    missing = [name for name, is_there in needs.items() if not is_there]
    return f"this vLLM has no {', '.join(missing)}" if missing else None


def join_steps(args: argparse.Namespace) -> StepChannel | None:
    """Make vLLM's engine record its steps; return None, with one warning, if it cannot.

    Must run before vLLM starts its engine.
    """
    obstacle = find_obstacle(args)
    if obstacle is None:
        try:
            channel = open_channel()
        except OSError as error:
            obstacle = str(error)
        else:
            args.scheduler_cls = getattr(args, "scheduler_cls", None) or SCHEDULER_CLASS
            return channel
    logger.warning("requests are recorded without a ledger: %s", obstacle)
    return None
