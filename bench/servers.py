"""Servers for benches to compare: `evenkeel serve` with its hooks, and vLLM's own server."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from evenkeel_runtime.adapter.small_machine import EXECUTOR
from evenkeel_runtime.demo_model.checkpoint import draft_path, target_path

MODEL = "support"
READY_TIMEOUT_S = 300.0
HOOKS, REQUESTS, BARE, TRACING, SECOND = "hooks", "requests", "bare", "tracing", "second bare"
# Random weights behind the demo model's tokenizer, by what they are shaped like.
SHAPES: dict[str, dict[str, int]] = {
    # GPT-2 and OPT-125M
    "115m": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 12,
        "head_dim": 64,
    },
    # Llama 3 8B without its vocabulary: 7 billion
    "7b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
}
# In the step hook's place, so that only requests are observed; on a GPU vLLM plans ahead.
OWN_SCHEDULER = "vllm.v1.core.sched.scheduler.Scheduler"
OWN_GPU_SCHEDULER = "vllm.v1.core.sched.async_scheduler.AsyncScheduler"
# As `evenkeel serve` chooses on few cores; without it, polling makes throughput a lottery.
CPU_FLAGS = ("--enforce-eager", "--distributed-executor-backend", EXECUTOR)
# Four servers share one card.
GPU_FLAGS = ("--gpu-memory-utilization", "0.22", "--kv-cache-memory-bytes", str(2 << 30))


@dataclass(frozen=True, slots=True)
class Served:
    """The model and device of all servers in a bench.

    Attributes:
        weights: `demo`, or one of `SHAPES`.
        is_gpu: Whether vLLM computes on a GPU.
        flags: More of vLLM's flags, for all alike.
    """

    weights: str = "demo"
    is_gpu: bool = False
    flags: tuple[str, ...] = ()

    def vllm_flags(self) -> tuple[str, ...]:
        """Return them as vLLM's flags."""
        flags: tuple[str, ...] = GPU_FLAGS if self.is_gpu else CPU_FLAGS
        if self.weights != "demo":
            shape = json.dumps(SHAPES[self.weights])
            flags += ("--load-format", "dummy", "--hf-overrides", shape)
        return flags + self.flags


def add_served(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `read_served` reads."""
    parser.add_argument("--weights", choices=("demo", *SHAPES), default="demo")
    parser.add_argument("--gpu", action="store_true", help="vLLM computes on a GPU")
    parser.add_argument("--flags", default="", help="more of vLLM's flags, for every server")


def read_served(args: argparse.Namespace) -> Served:
    """Return the settings given by the flags of `add_served`."""
    return Served(args.weights, args.gpu, tuple(shlex.split(args.flags)))


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def cpu_s(self) -> Cpu:
        """CPU seconds so far of its processes."""
        seconds = {"http": _cpu_s(self.process.pid), "engine": 0.0, "exporter": 0.0}
        for process in psutil.Process(self.process.pid).children(recursive=True):
            if process.name().startswith("VLLM::"):
                seconds["engine"] += _cpu_s(process.pid)
            elif "evenkeel_runtime.exporter.process" in process.cmdline():
                seconds["exporter"] += _cpu_s(process.pid)
        return Cpu(**seconds)


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds of a server's processes: HTTP with vLLM's front end, engine, exporter."""

    http: float
    engine: float
    exporter: float

    def less(self, other: Cpu) -> Cpu:
        """Return the difference."""
        return Cpu(
            self.http - other.http, self.engine - other.engine, self.exporter - other.exporter
        )


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process, exact: the clock of clock_getcpuclockid(3), not ticks of 10 ms."""
    return time.clock_gettime((~pid << 3) | 2)


def describe_machine() -> dict[str, object]:
    """Return the description of the machine for a report."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    cores = len(os.sched_getaffinity(0))
    return {"cores": cores, "machine": platform.machine(), "gpu": gpu}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def receiver() -> Iterator[str]:
    """A process that accepts every OTLP body unread, and reports the number per path."""
    port = free_port()
    code = (
        "from collections import Counter\n"
        "from http.server import *\n"
        "bodies = Counter()\n"
        "class H(BaseHTTPRequestHandler):\n"
        "    protocol_version = 'HTTP/1.1'\n"
        "    def do_POST(self):\n"
        "        self.rfile.read(int(self.headers['content-length']))\n"
        "        bodies[self.path] += 1\n"
        "        self.send_response(200)\n"
        "        self.send_header('content-length', '0')\n"
        "        self.end_headers()\n"
        "    def do_GET(self):\n"
        "        body = str(bodies[self.path]).encode()\n"
        "        self.send_response(200)\n"
        "        self.send_header('content-length', str(len(body)))\n"
        "        self.end_headers()\n"
        "        self.wfile.write(body)\n"
        "    def log_message(self, *_): pass\n"
        f"ThreadingHTTPServer(('127.0.0.1', {port}), H).serve_forever()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@contextmanager
def serve(
    name: str,
    served: Served,
    folder: Path,
    otlp: str,
    speculates: bool = False,
    more_flags: tuple[str, ...] = (),
    entry: tuple[str, ...] = (),
) -> Iterator[Server]:
    """Start a server; any name except those of the hooks and `TRACING` is bare vLLM.

    What it says goes to `folder`/`name`.log. `entry` stands in for its module and first words.
    """
    port = free_port()
    flags = ["--served-model-name", MODEL, "--no-use-tqdm-on-load", *served.vllm_flags()]
    flags += ["--disable-uvicorn-access-log", "--uvicorn-log-level", "warning"]
    if speculates:
        draft = {
            "method": "draft_model",
            "model": str(draft_path()),
            "num_speculative_tokens": 4,
        }
        flags += ["--speculative-config", json.dumps(draft)]
    address = ["--host", "127.0.0.1", "--port", str(port)]
    if name in (HOOKS, REQUESTS):
        command = [*(entry or ("evenkeel", "serve")), str(target_path())]
        flags += ["--otlp-endpoint", f"{otlp}/{name}", "--data-dir", str(folder / name)]
        if name == REQUESTS:
            flags += ["--scheduler-cls", OWN_GPU_SCHEDULER if served.is_gpu else OWN_SCHEDULER]
    else:
        own = entry or ("vllm.entrypoints.openai.api_server",)
        command = [*own, "--model", str(target_path())]
    environment = dict(os.environ) | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        # Where this package is installed, its plugin would be in the bare server as well.
        "VLLM_PLUGINS": "none",
    }
    if name == TRACING:
        environment["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
        # As often as ours: what a block leaves to be sent is sent while its CPU time is counted.
        environment["OTEL_BSP_SCHEDULE_DELAY"] = "500"
        flags += ["--otlp-traces-endpoint", f"{otlp}/{name}/v1/traces"]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command, *address, *flags, *more_flags],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield Server(name, port, process, folder / f"{name}.log")
    finally:
        stop(process)


@contextmanager
def serve_own(model: str, *flags: str) -> Iterator[str]:
    """Run `evenkeel serve`, whose records go nowhere; yield its address once it answers."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "evenkeel", "serve", model, "--port", str(port)]
        command += ["--data-dir", folder, "--otlp-endpoint", "http://127.0.0.1:9", *flags]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            wait_until_ready(Server(model, port, process, Path(os.devnull)))
            yield f"http://127.0.0.1:{port}"
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a server and what it has started."""
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def chat_request(question: str, tokens: int, *headers: str) -> bytes:
    """Return a request for a streamed answer of this length, as it goes over the connection."""
    body = json.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1", "host: 127.0.0.1", "connection: close", *headers,
        "content-type: application/json", f"content-length: {len(body)}", "", "",
    )  # fmt: skip
    return "\r\n".join(head).encode() + body


def wait_for(otlp: str) -> None:
    """Wait until a receiver answers."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        with suppress(OSError):
            urllib.request.urlopen(f"{otlp}/").close()
            return
        time.sleep(0.05)
    raise SystemExit(f"the receiver at {otlp} did not start")


def refuse_silence(otlp: str, name: str) -> None:
    """Exit if a server that should have sent spans sent none: its cost would be wrong."""
    with urllib.request.urlopen(f"{otlp}/{name}/v1/traces") as answer:
        if int(answer.read()) == 0:
            raise SystemExit(f"no span came from {name!r}")


def wait_until_ready(server: Server) -> None:
    """Wait until it answers.

    Raises:
        SystemExit: If it ends before, or does not answer in time.
    """
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline and server.process.poll() is None:
        with suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/health", timeout=2).close()
            return
        time.sleep(0.2)
    raise SystemExit(f"the server {server.name!r} did not start: {server.log}")
