"""The data folder of a real collector, walked: nobody but its owner may open anything in it."""

import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.fixtures.collector_process import (
    PROTOBUF,
    ROOT,
    CollectorProcess,
    collector_environment,
    post,
    start_collector,
    wait_for,
)
from tests.fixtures.otlp_payload import trace_request
from tests.fixtures.private_walk import open_to_others

pytestmark = pytest.mark.usefixtures("usual_umask")

SLOS = ("--slos", str(ROOT / "slos.yaml"))


def store_something(collector: CollectorProcess) -> None:
    sent = trace_request(attributes={"gen_ai.operation.name": "chat"}).SerializeToString()
    assert post(collector, sent, PROTOBUF).status_code == httpx.codes.OK
    wait_for(lambda: collector.rows("SELECT count() FROM spans")[0][0] > 0)
    # The audit is made by the first action.
    done = httpx.post(
        f"{collector.http_url}/api/silence",
        json={"slo": "support-ttft", "duration": "1h", "comment": "test", "by": "ann"},
        timeout=120,
    )
    assert done.status_code == httpx.codes.OK, done.text


def test_all_that_a_collector_keeps_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    # The collector logs its output into the folder, too: as a service manager might.
    folder.chmod(0o700)
    collector = start_collector(folder, SLOS)
    try:
        store_something(collector)
        left_open = open_to_others(folder)
        collector.stop()
        left_open += open_to_others(folder)
    finally:
        collector.kill()
    (folder / "stderr.txt").unlink()
    assert {name for name in left_open if not name.startswith("stderr.txt")} == set()
    assert {"alerts.db", "audit.db"} <= {path.name for path in folder.iterdir()}
    assert any((folder / "store").rglob("*.bin"))


def test_a_folder_of_an_earlier_version_is_closed_when_the_collector_starts(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "data"
    collector = start_collector(folder, SLOS)
    try:
        store_something(collector)
        collector.stop()
        for path in (folder, *folder.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() else 0o644)
        collector = start_collector(folder, SLOS)
        assert open_to_others(folder) == []
        assert "removed access for other users" in collector.stderr()
        assert collector.rows("SELECT count() FROM spans")[0][0] > 0
    finally:
        collector.kill()


def test_a_backup_and_what_is_restored_of_it_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    collector = start_collector(folder, SLOS)
    try:
        store_something(collector)
        collector.stop()
    finally:
        collector.kill()
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)

    def store(*arguments: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "evenkeel", "store", *arguments],
            check=True,
            env=collector_environment(),
            cwd=tmp_path,
            timeout=300,
        )

    store("backup", "copy.tar", "--data-dir", str(folder))
    store("restore", "copy.tar", "--data-dir", str(tmp_path / "again"))
    assert stat.S_IMODE((tmp_path / "copy.tar").stat().st_mode) == 0o600
    assert open_to_others(tmp_path / "again") == []
