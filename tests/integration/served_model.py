"""The demo model behind a real `evenkeel serve`, its spans going to a receiver in the test."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from tests.integration.otlp_receiver import OtlpReceiver, ReceivedSpan

ROOT = Path(__file__).parents[2]
MODEL = "support"
NO_SETTINGS: Mapping[str, str] = {}
QUEUE_REQUESTS = 200
LONG_TOKENS = 3900
LONG_ANSWERS = 4
_READY_TIMEOUT_S = 600.0
# Tests share the machine with whatever else runs on it.
_STOP_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A running server.

    Attributes:
        url: Its address, without `/v1`.
        model: The name it serves the model under.
        receiver: Where its spans go.
        process: The server.
        folder: With its `control.toml` and `serve.log`.
    """

    url: str
    model: str
    receiver: OtlpReceiver
    process: subprocess.Popen[bytes]
    folder: Path

    def spans(self) -> list[ReceivedSpan]:
        """Return every span received so far."""
        return self.receiver.spans()

    def wait_for_request(self, **attributes: object) -> ReceivedSpan:
        """Return the request span that has these attributes (dots written as `__`)."""
        return self.wait_for_requests(1, **attributes)[0]

    def wait_for_requests(self, count: int, **attributes: object) -> list[ReceivedSpan]:
        wanted = {name.replace("__", "."): value for name, value in attributes.items()}
        return self.receiver.wait_for(
            lambda s: s.kind == 2 and wanted.items() <= _hashable(s.attributes).items(), count
        )

    def children(self, span: ReceivedSpan) -> dict[str, ReceivedSpan]:
        return {s.name: s for s in self.spans() if s.parent_span_id == span.span_id}

    def metric(self, name: str) -> float:
        """Return the sum over labels of one of the server's own metrics."""
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        return sum(
            float(line.split()[-1]) for line in lines if line.split("{")[0].split()[0] == name
        )


# The class `instant` is always late: whoever uses it sets the ladder in motion, and `batch`,
# which is shed first, is used by nobody else.
CONTROL_FILE = """
default_class = "patient"
window_s = 1
recover_s = 1

[classes.instant]
ttft_s = 0.0001
queue_deadline_s = 60

[classes.patient]
ttft_s = 60

[classes.batch]
ttft_s = 600

[tenants.limited]
requests_per_minute = 2
"""


def _hashable(attributes: dict[str, object]) -> dict[str, object]:
    return {k: v for k, v in attributes.items() if not isinstance(v, list)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serve(
    folder: Path, receiver: OtlpReceiver, *flags: str, settings: Mapping[str, str] = NO_SETTINGS
) -> Iterator[ServedModel]:
    """Start `evenkeel serve demo` and stop it at the end, in which case it must end well."""
    port = free_port()
    environment = dict(os.environ) | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        "EVENKEEL_RUNTIME_RAISE_INTERNAL_ERRORS": "true",
        "EVENKEEL_RUNTIME_EXPORT_INTERVAL_S": "0.05",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        **settings,
    }
    control_file = folder / "control.toml"
    control_file.write_text(CONTROL_FILE, encoding="utf-8")
    log = folder / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "evenkeel", "serve", "demo"),
                *("--port", str(port), "--data-dir", str(folder / "data")),
                *("--queue-requests", str(QUEUE_REQUESTS)),
                *("--control-file", str(control_file)),
                *("--prompts-dir", str(ROOT / "prompts")),
                *flags,
            ],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    served = ServedModel(f"http://127.0.0.1:{port}", MODEL, receiver, process, folder)
    is_ready = False
    try:
        _wait_until_ready(served, log)
        is_ready = True
        yield served
    finally:
        if is_ready:
            stop_in_the_middle(served, log)
        else:
            stop(process, log)


@contextmanager
def long_answer(served: ServedModel, tenant: str, is_streamed: bool = True) -> Iterator[None]:
    """Have long answers generated while the block runs, then close the connection on them.

    Nothing is read, and they take many seconds: on a busy machine data, and the end of a
    connection, may arrive seconds after they were sent.
    """
    body = json.dumps(
        {
            "model": served.model,
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": LONG_TOKENS,
            "n": LONG_ANSWERS,
            "ignore_eos": True,
            "stream": is_streamed,
        }
    ).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"x-evenkeel-tenant: {tenant}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    address = ("127.0.0.1", httpx.URL(served.url).port)
    with socket.create_connection(address) as connection:
        connection.sendall(head.encode() + body)
        time.sleep(0.5)
        yield


def stop_in_the_middle(served: ServedModel, log: Path) -> None:
    """Stop the server while it answers: that request is cut off, and its record still exported."""
    with long_answer(served, "cut-off"):
        stop(served.process, log)
    cut_off = served.wait_for_request(evenkeel__tenant="cut-off").attributes
    if cut_off["evenkeel.status"] == "ok":
        # vLLM's processes poll with `sched_yield`, which on two cores may keep this one waiting for
        # seconds, and the answer was whole before it pressed Ctrl-C.
        assert cut_off["gen_ai.usage.output_tokens"] == LONG_TOKENS * LONG_ANSWERS
        return
    # Whichever is faster: the engine's last word, its end, or the server's patience.
    assert cut_off["error.type"] in {"engine_abort", "cancelled", "EngineDeadError"}


def stop(process: subprocess.Popen[bytes], log: Path) -> None:
    """Press Ctrl-C on the server's process group: it ends well and wholly."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        code = process.wait(_STOP_TIMEOUT_S)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        # Python's own resource tracker ends once it sees that the others have.
        while (left := _processes_of_group(process.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        said = log.read_text(errors="replace")
        assert code == 0, f"exit code {code}:\n{said}"
        assert left == [], f"processes left behind: {left}"
        assert "Traceback" not in said, said
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _processes_of_group(group: int) -> list[str]:
    return [
        " ".join(p.info["cmdline"] or [])
        for p in psutil.process_iter(["cmdline", "status"])
        if p.info["status"] != psutil.STATUS_ZOMBIE and _group_of(p.pid) == group
    ]


def _group_of(pid: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


def _wait_until_ready(served: ServedModel, log: Path) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while time.monotonic() < deadline and served.process.poll() is None:
        try:
            if httpx.get(f"{served.url}/health", timeout=2).is_success:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the server did not become ready:\n{log.read_text(errors='replace')}")
