"""The commands of docker-compose.yml, run without containers: the demo against running parts."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from evenkeel_demo.parts import Ports
from tests.checkout import ROOT
from tests.e2e.test_demo import free_offset, is_up, wait_until

SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


def local(argument: str, folder: Path, ports: Ports) -> str:
    """An argument of a container as it is on this machine."""
    for name, port in (("runtime", ports.runtime), ("collector", ports.otlp_http)):
        standard = {"runtime": 8000, "collector": 4318}[name]
        argument = argument.replace(f"http://{name}:{standard}", f"http://127.0.0.1:{port}")
    argument = argument.replace("http://127.0.0.1:8501", f"http://127.0.0.1:{ports.dashboard}")
    # Not one of the five ports, so one that is free beside them.
    argument = argument.replace("http://demo:9095", f"http://127.0.0.1:{ports.dashboard + 1}")
    return argument.replace("/demo", str(folder)).replace("0.0.0.0", "127.0.0.1")


def run(service: str, folder: Path, ports: Ports, *more: str) -> subprocess.Popen[str]:
    command = [local(each, folder, ports) for each in SERVICES[service]["command"]]
    environment = {
        "EVENKEEL_DATA_DIR": str(folder.parent / service),
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{ports.otlp_http}",
        "EVENKEEL_DEMO_STORE_URL": f"http://127.0.0.1:{ports.query}",
        "EVENKEEL_DASHBOARD_QUERY_URL": f"http://127.0.0.1:{ports.query}",
    }
    with (folder.parent / f"{service}.log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "evenkeel", *command, *more],
            cwd=ROOT,
            env=os.environ | environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=log,
        )


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[tuple[Path, Ports]]:
    folder, ports = tmp_path / "demo", Ports(free_offset())
    folder.mkdir()
    writing = run("files", folder, ports)
    writing.communicate(timeout=300)
    assert writing.returncode == 0
    with ExitStack() as stack:
        for service, more in (
            ("collector", ("--http-port", str(ports.otlp_http), "--grpc-port",
                           str(ports.otlp_grpc), "--query-port", str(ports.query))),
            ("runtime", ("--port", str(ports.runtime))),
            ("dashboard", ("--port", str(ports.dashboard))),
        ):  # fmt: skip
            process = run(service, folder, ports, *more)
            stack.callback(process.communicate, timeout=300)
            stack.callback(process.terminate)
        for url in (
            f"http://127.0.0.1:{ports.otlp_http}/readyz",
            f"http://127.0.0.1:{ports.runtime}/health",
            f"http://127.0.0.1:{ports.dashboard}/_stcore/health",
        ):
            wait_until(partial(is_up, url), url, 300)
        yield folder, ports


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_compose_plays_the_same_story(platform: tuple[Path, Ports]) -> None:
    folder, ports = platform
    process = run("demo", folder, ports, "--exit-after", "75s", "--json")
    output, _ = process.communicate(timeout=1200)
    told = (folder.parent / "demo.log").read_text()
    assert process.returncode == 0, told
    printed = json.loads(output)
    for name in (
        "answered_from_cache",
        "verified_from_cache",
        "compressed",
        "feedback",
        "live_evaluations",
    ):
        assert printed[name] > 0, name
    assert printed["comparison"]["exit_code"] == 1
    assert ("support-ttft", "firing") in {(a["slo"], a["status"]) for a in printed["alerts"]}
    # It acted during the second crowd, and only observes since.
    crowds = printed["crowds"]
    watching, acting = (
        crowds[mode]["ttft_p50_s"] / crowds[mode]["long_ttft_p50_s"]
        for mode in ("watching", "acting")
    )
    assert acting < watching
    assert 'mode = "dry-run"' in (folder / "control.toml").read_text()
    assert httpx.get(f"http://127.0.0.1:{ports.runtime}/control").json()["mode"] == "dry-run"


def test_parts_that_do_not_answer_are_named(tmp_path: Path) -> None:
    folder, ports = tmp_path / "demo", Ports(free_offset())
    folder.mkdir()
    began_s = time.monotonic()
    process = run("demo", folder, ports)
    process.communicate(timeout=300)
    told = (tmp_path / "demo.log").read_text().strip().splitlines()
    assert process.returncode == 3
    assert told[-1].startswith("evenkeel: the runtime is not ready: http://127.0.0.1:"), told
    assert time.monotonic() - began_s < 240
