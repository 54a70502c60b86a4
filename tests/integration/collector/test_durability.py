"""A short form of bench/durability.py: the script itself, and that nothing is lost or doubled."""

import json
from pathlib import Path

import httpx

from tests.checkout import ROOT
from tests.fixtures.collector_process import (
    collector_environment,
    running_collector,
    wait_for,
)
from tests.fixtures.otlp_payload import trace_request
from tests.fixtures.python_process import run_python

PROTOBUF = {"content-type": "application/x-protobuf"}
SHORT = (
    "--kills", "1", "--bodies", "200", "--stopped-s", "1", "--full-s", "0.5", "--restarts", "1",
    "--seed", "7",
)  # fmt: skip


def test_nothing_acknowledged_is_lost_in_a_short_durability_run(tmp_path: Path) -> None:
    output = tmp_path / "durability.json"
    command = (str(ROOT / "bench/durability.py"), *SHORT, "--json", str(output))
    done = run_python(*command, timeout=1500, env=collector_environment())
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(output.read_text(encoding="utf-8"))
    assert set(figures) == {
        "kill -9", "mutated bodies", "store stopped", "disk full", "torn log",
    }  # fmt: skip
    assert figures["kill -9"]["acknowledged_spans"] > 0
    assert figures["kill -9"]["acknowledged_records"] > 0
    assert figures["mutated bodies"]["refused"] > 0
    assert figures["store stopped"]["acknowledged_spans"] > 0
    assert figures["store stopped"]["acknowledged_records"] > 0
    assert figures["disk full"]["told_to_wait"] > 0
    assert figures["torn log"]["cuts"] > 100


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    with running_collector(tmp_path / "it's {a,b}*") as collector:
        body = trace_request(3, service="odd").SerializeToString()
        answer = httpx.post(f"{collector.http_url}/v1/traces", content=body, headers=PROTOBUF)
        assert answer.status_code == 200
        wait_for(lambda: collector.rows("SELECT count() FROM spans") == [(3,)])
