"""Start and stop the processes of the dashboard's benches."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx


def started(stack: contextlib.ExitStack, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "evenkeel", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    def stop() -> None:
        process.send_signal(signal.SIGINT)
        process.communicate()

    stack.callback(stop)
    return process


def collect(stack: contextlib.ExitStack, folder: Path, *flags: str) -> dict[str, str]:
    """Start a collector on free ports, and return its addresses."""
    ports = ("--http-port", "0", "--grpc-port", "0", "--query-port", "0")
    process = started(stack, "collect", "--json", "--data-dir", str(folder), *ports, *flags)
    assert process.stdout is not None
    addresses: dict[str, str] = json.loads(process.stdout.readline())
    return addresses


def serve_dashboard(
    stack: contextlib.ExitStack, addresses: Mapping[str, str], slo_file: Path
) -> str:
    """Start a dashboard on a collector's addresses, and return its URL once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started(
        stack, "dashboard", "--port", str(port), "--query-url", addresses["query_url"],
        "--collector-url", addresses["http_url"], "--slos", str(slo_file),
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    for _ in range(300):
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/_stcore/health").status_code == 200:
                return url
        time.sleep(0.2)
    raise SystemExit("the dashboard did not answer within a minute")
