"""A real `evenkeel collect` in a process of its own, for integration tests to import.

@pytest.fixture(scope="module")
def collector(tmp_path_factory):
    with running_collector(tmp_path_factory.mktemp("collector")) as collector:
        yield collector
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clickhouse_connect
import httpx

ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 120.0
PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}


@dataclass
class CollectorProcess:
    """A running collector; `http_url` takes OTLP, `query_url` answers ClickHouse clients."""

    process: subprocess.Popen[str]
    data_dir: Path
    http_url: str
    grpc_url: str
    query_url: str
    stderr_path: Path

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait()
        self.close_output()

    def stop(self) -> int:
        """End it as an operator would, and return its exit code."""
        self.process.terminate()
        code = self.process.wait(STOP_TIMEOUT_S)
        self.close_output()
        return code

    def close_output(self) -> None:
        """Close our end of its standard output."""
        if self.process.stdout is not None:
            self.process.stdout.close()

    def client(self) -> Any:
        """Return a stock ClickHouse client of the query port."""
        return clickhouse_connect.get_client(dsn=self.query_url, database="evenkeel")

    def rows(self, sql: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        client = self.client()
        try:
            return [tuple(row) for row in client.query(sql, parameters=parameters).result_rows]
        finally:
            client.close()

    def stderr(self) -> str:
        """Return what it has logged so far."""
        return self.stderr_path.read_text(encoding="utf-8")


def collect_command(data_dir: Path, *flags: str) -> list[str]:
    """Return the command line of a collector on free ports."""
    return [
        sys.executable, "-m", "evenkeel", "collect", "--json", "--data-dir", str(data_dir),
        "--http-port", "0", "--grpc-port", "0", "--query-port", "0", *flags,
    ]  # fmt: skip


def collector_environment() -> dict[str, str]:
    """Return an environment in which this checkout's packages are the ones imported."""
    return {**dict(os.environ), "PYTHONPATH": str(ROOT)}


def start_collector(
    data_dir: Path, flags: Sequence[str] = (), wrapper: Sequence[str] = ()
) -> CollectorProcess:
    """Start a collector and return once it is ready; `wrapper` is a command that runs it."""
    data_dir.mkdir(parents=True, exist_ok=True)
    stderr_path = data_dir / "stderr.txt"
    with stderr_path.open("a", encoding="utf-8") as stderr:
        process = subprocess.Popen(
            [*wrapper, *collect_command(data_dir, *flags)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=data_dir,
            env=collector_environment(),
        )
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_TIMEOUT_S)
    line = process.stdout.readline() if ready else ""
    if not line:
        process.kill()
        process.wait()
        raise AssertionError(f"the collector did not start: {stderr_path.read_text()}")
    return CollectorProcess(process, data_dir, stderr_path=stderr_path, **json.loads(line))


@contextlib.contextmanager
def running_collector(
    data_dir: Path, flags: Sequence[str] = (), wrapper: Sequence[str] = ()
) -> Iterator[CollectorProcess]:
    """Run a collector for the length of the block."""
    collector = start_collector(data_dir, flags, wrapper)
    try:
        yield collector
    finally:
        if collector.process.poll() is None:
            collector.stop()
        collector.close_output()


def post(collector: CollectorProcess, body: bytes, headers: dict[str, str]) -> httpx.Response:
    """Send traces over HTTP, and return the answer."""
    return httpx.post(f"{collector.http_url}/v1/traces", content=body, headers=headers, timeout=120)


def wait_for(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    """Return once the condition holds; a machine that is busy may take long.

    Raises:
        AssertionError: If it does not within the timeout.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {timeout_s} s"
        time.sleep(0.05)
