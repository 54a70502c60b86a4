"""Ports, parts that end, and that nothing is left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel.processes import Part, Platform, refuse_taken_ports
from evenkeel_dashboard.frame.server import refuse_taken_port as refuse_taken_port_of_dashboard
from evenkeel_runtime.serve.server import refuse_taken_port as refuse_taken_port_of_runtime


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port} for the runtime"):
            refuse_taken_ports({"runtime": port}, "127.0.0.1")


def test_a_port_beyond_the_last_is_refused() -> None:
    for port in (99999, -1):
        with pytest.raises(ConfigurationError, match=f"port {port} for the runtime: ports go from"):
            refuse_taken_ports({"runtime": port}, "127.0.0.1")


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid"])
def test_an_address_of_another_machine_is_no_taken_port(host: str) -> None:
    """192.0.2.1 is for documentation (RFC 5737): no machine has it."""
    advice = "give an address of this machine with --host"
    with pytest.raises(ConfigurationError, match=advice):
        refuse_taken_ports({"runtime": 0}, host)
    with pytest.raises(ConfigurationError, match=advice):
        refuse_taken_port_of_dashboard(host, 0)
    with pytest.raises(ConfigurationError, match=advice):
        refuse_taken_port_of_runtime(host, 0)


def test_a_part_that_ends_says_its_last_line(tmp_path: Path) -> None:
    part = Part("wrong", ["no-such-command"], "http://127.0.0.1:9/", {})
    with Platform(tmp_path) as platform:
        platform.start(part)
        with pytest.raises(
            CannotMeasureError, match=r"wrong exited with code 2: .*no-such-command"
        ):
            platform.wait_ready(part, timeout_s=240)


LINGERING = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(subprocess.Popen(["sleep", "60"]).pid, flush=True)
time.sleep(60)
"""


def test_stop_ends_also_what_ignores_it_and_what_it_started(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LINGERING], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    grandchild = int(process.stdout.readline())
    with process.stdout:
        platform = Platform(tmp_path, stop_grace_s=0.2)
        platform._running["lingering"] = process
        platform.stop()
    assert process.returncode == -signal.SIGKILL
    assert not _is_alive(grandchild)


def _is_alive(pid: int) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return False
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return True
