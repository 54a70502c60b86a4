"""Fixtures of the dashboard's tests: one shared platform, and a browser per module."""

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from evenkeel.store import Store
from tests.fixtures.collector_process import copy_new_store
from tests.fixtures.dashboard_process import (
    NUM_REQUESTS,
    PRICES,
    SLOS,
    Platform,
    evenkeel,
    make_registry,
    send_evaluation,
    stop,
    wait_for,
    wait_until_stored,
)
from tests.fixtures.served_model import free_port
from tests.queries import query


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    folder = tmp_path_factory.mktemp("collector")
    slo_file = folder / "slos.yaml"
    slo_file.write_text(SLOS, encoding="utf-8")
    price_file = folder / "prices.toml"
    price_file.write_text(PRICES, encoding="utf-8")
    ports = ("--http-port", "0", "--grpc-port", "0", "--query-port", "0")
    data = ("--data-dir", str(folder / "data"))
    collect = ("collect", "--json", *data, *ports, "--prices", str(price_file))
    copy_new_store(folder / "data" / "store")
    # Filled before the evaluator starts, because a running evaluator does not look back.
    filling = evenkeel(*collect)
    addresses = read_addresses(filling)
    # A minute ago, so that the last requests of the simulation have ended by now.
    until_s = int(time.time()) - 60
    simulation = evenkeel(
        "simulate", "--endpoint", addresses["http_url"], "--requests", str(NUM_REQUESTS),
        "--duration", "30m", "--incident", "long-prompts", "--json",
        "--until", datetime.fromtimestamp(until_s, tz=UTC).isoformat(),
    )  # fmt: skip
    out, err = simulation.communicate(timeout=900)
    assert simulation.returncode == 0, err
    send_evaluation(addresses["http_url"], until_s * 10**9)
    wait_until_stored(addresses["query_url"])
    stop(filling)
    with contextlib.ExitStack() as running:
        prompts = make_registry(folder / "prompts")
        collector = evenkeel(
            *collect, "--slos", str(slo_file), "--prompts-dir", str(folder / "prompts")
        )
        running.callback(stop, collector)
        addresses = read_addresses(collector)
        wait_until_firing(addresses["query_url"])
        port = free_port()
        dashboard = evenkeel(
            "dashboard", "--port", str(port), "--query-url", addresses["query_url"],
            "--collector-url", addresses["http_url"], "--slos", str(slo_file),
        )  # fmt: skip
        running.callback(stop, dashboard)
        wait_for(f"http://127.0.0.1:{port}/_stcore/health", dashboard)
        yield Platform(
            query_url=addresses["query_url"],
            http_url=addresses["http_url"],
            dashboard_url=f"http://127.0.0.1:{port}",
            from_ms=(until_s - 1800) * 1000,
            to_ms=until_s * 1000,
            simulated=json.loads(out),
            slo_file=slo_file,
            prompts=prompts,
        )


def read_addresses(collector: subprocess.Popen[str]) -> dict[str, str]:
    assert collector.stdout is not None
    line = collector.stdout.readline()
    assert line, f"the collector did not start: {collector.communicate()[1]}"
    addresses: dict[str, str] = json.loads(line)
    return addresses


def wait_until_firing(query_url: str) -> None:
    store = Store(query_url)
    everything = {"from_ms": 0, "to_ms": 4_000_000_000_000}
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        if any(alert["state"] == "firing" for alert in store.rows(query("alerts"), everything)):
            break
        time.sleep(0.3)
    else:
        raise AssertionError("the simulated incident fired no alert within 600 s")
    store.close()
