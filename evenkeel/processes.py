"""Starts each part in its own process and stops them all, whatever happens."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from evenkeel.errors import CannotMeasureError, ConfigurationError

_LAST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the platform: its name, sub-command, environment and readiness address."""

    name: str
    arguments: Sequence[str]
    ready_url: str
    environment: Mapping[str, str]


def refuse_taken_ports(ports: Mapping[str, int], host: str) -> None:
    """Check that every port is free.

    Raises:
        ConfigurationError: If one is taken, or is no port; names the first.
    """
    for name, port in ports.items():
        if not 0 <= port <= _LAST_PORT:
            raise ConfigurationError(
                f"port {port} for the {name}: ports go from 0 to {_LAST_PORT}; choose another "
                "--port-offset"
            )
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                advice = listening_advice(
                    error, "stop what holds it, or shift all ports with --port-offset N"
                )
                raise ConfigurationError(
                    f"port {port} for the {name} is not free on {host} ({error}); {advice}"
                ) from error


def listening_advice(error: OSError, otherwise: str) -> str:
    """Return what to do about an address that cannot be listened on; `otherwise` if it is taken."""
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return "give an address of this machine with --host"
    return otherwise


class Platform:
    """A context manager for the running parts; on exit, no process is left behind.

    Args:
        log_dir: Where each part's output goes, one file per part.
        stop_grace_s: How long a part may take to stop before it is killed.
    """

    def __init__(self, log_dir: Path, stop_grace_s: float = 10.0) -> None:
        self._log_dir = log_dir
        self._stop_grace_s = stop_grace_s
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, part: Part) -> None:
        """Start a part in its own process group, so that Ctrl-C reaches only us."""
        with (self._log_dir / f"{part.name}.log").open("wb") as log:
            self._running[part.name] = subprocess.Popen(
                [sys.executable, "-m", "evenkeel", *part.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **part.environment},
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    def wait_ready(self, part: Part, timeout_s: float) -> None:
        """Wait until the part answers its readiness address with 200.

        Raises:
            CannotMeasureError: If it exited or did not answer in time; shows its last output line.
        """
        deadline = time.monotonic() + timeout_s
        with httpx.Client(timeout=10) as client:
            while time.monotonic() < deadline:
                self.refuse_ended(part.name)
                try:
                    if client.get(part.ready_url).status_code == httpx.codes.OK:
                        return
                except httpx.TransportError:
                    pass
                time.sleep(0.2)
        raise CannotMeasureError(
            f"the {part.name} was not ready after {timeout_s:.0f} s: {self._last_line(part.name)}"
        )

    def refuse_ended(self, name: str) -> None:
        """Raise CannotMeasureError if the part has exited."""
        code = self._running[name].poll()
        if code is not None:
            raise CannotMeasureError(
                f"the {name} exited with code {code}: {self._last_line(name)} "
                f"(full log: {self._log_path(name)})"
            )

    def refuse_any_ended(self) -> None:
        """Raise CannotMeasureError if any part has exited."""
        for name in self._running:
            self.refuse_ended(name)

    def stop(self) -> None:
        """Stop every part, last started first: with SIGTERM, then by force."""
        for process in reversed(self._running.values()):
            _signal_group(process, signal.SIGTERM)
        deadline = time.monotonic() + self._stop_grace_s
        for process in reversed(self._running.values()):
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            # Includes processes that the part left behind, such as an engine.
            _signal_group(process, signal.SIGKILL)
            process.wait()
        self._running.clear()

    def _log_path(self, name: str) -> Path:
        return self._log_dir / f"{name}.log"

    def _last_line(self, name: str) -> str:
        lines = self._log_path(name).read_text(encoding="utf-8", errors="replace").splitlines()
        told = [line.strip() for line in lines if line.strip()]
        ours = [line for line in told if line.startswith("evenkeel:")]
        return (ours or told or ["it printed nothing"])[-1]


def _end_with_parent() -> None:
    """Make Linux kill this child if the demo itself is killed (prctl(2), PR_SET_PDEATHSIG)."""
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM)


_PR_SET_PDEATHSIG = 1
# Looked up before any fork: a child of a threaded process should do as little as possible.
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass
