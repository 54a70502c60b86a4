"""The collector writes in its own folders only, and the kernel keeps it so."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx

from evenkeel.landlock import why_unavailable
from tests.checkout import ROOT
from tests.fixtures.collector_process import (
    collect_command,
    collector_environment,
    running_collector,
    wait_for,
)
from tests.fixtures.otlp_payload import trace_request

INTRUDER = ROOT / "tests" / "fixtures" / "write_intruder.py"
# What it may, and must.
ALLOWED = {
    "in data", "in prompts", "move inside", "temporary", "table", "thrown away", "read",
}  # fmt: skip


def test_nothing_is_written_outside(tmp_path: Path) -> None:
    """Where the kernel has no Landlock, this fails: the machine that tests must have it."""
    assert why_unavailable() is None
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "data" / "tmp").mkdir(parents=True)
    outside.mkdir()
    (outside / "victim").write_text("canary")
    done = subprocess.run(
        [sys.executable, str(INTRUDER), str(inside), str(outside)],
        env=collector_environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    tried = json.loads(done.stdout)
    assert {name for name, result in tried.items() if result == "done"} == ALLOWED, tried
    assert (outside / "victim").read_text() == "canary"
    assert [path.name for path in outside.iterdir()] == ["victim"]


def test_a_running_collector_says_that_it_is_confined_and_works(tmp_path: Path) -> None:
    data, prompts = tmp_path / "data", tmp_path / "prompts"
    (data / "tmp").mkdir(parents=True)
    (data / "tmp" / "left-by-a-kill").touch()
    with running_collector(data, ["--prompts-dir", str(prompts)]) as collector:
        assert f"writes are confined to {data}, {prompts}" in collector.stderr()
        assert "not confined" not in collector.stderr()
        assert list((data / "tmp").iterdir()) == []
        body = trace_request(3, {"evenkeel.status": "ok"}).SerializeToString()
        headers = {"content-type": "application/x-protobuf"}
        httpx.post(f"{collector.http_url}/v1/traces", content=body, headers=headers)
        wait_for(lambda: collector.rows("SELECT count() FROM spans") == [(3,)])
        # Every process and thread of it is: no new privilege can be had.
        for task in Path(f"/proc/{collector.process.pid}/task").iterdir():
            # Threads come and go.
            with suppress(FileNotFoundError, ProcessLookupError):
                assert "NoNewPrivs:\t1" in (task / "status").read_text()
        order = {"trace_id": "ab" * 16, "tenant": "t", "score": 1, "by": "ann"}
        answer = httpx.post(f"{collector.http_url}/api/feedback", json=order)
        assert answer.status_code == 200, answer.text
    assert (data / "audit.db").exists()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        collect_command(tmp_path / "file" / "data"),
        env=collector_environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "(--data-dir): Not a directory" in done.stderr.splitlines()[-1]
