"""Merges of the embedded store stop while its disk is nearly full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.fixtures.collector_process import collector_environment, copy_new_store

PROGRAM = """
import sys, time
from pathlib import Path
from clickhouse_connect.driver.exceptions import DatabaseError
from evenkeel_collector.store.merge_pause import MergePause
from evenkeel_collector.store.storage import open_embedded

storage = open_embedded(Path(sys.argv[1]) / "store")
client = storage.connect()
for part in range(2):
    client.command(f"INSERT INTO logs (Timestamp, Body) VALUES (now(), 'part {part}')")

def merge():
    client.command("OPTIMIZE TABLE logs FINAL SETTINGS optimize_throw_if_noop = 1")

def parts():
    sql = "SELECT count() FROM system.parts WHERE table = 'logs' AND active"
    return client.query(sql).first_row[0]

pause = MergePause(storage, min_free_bytes=1 << 60)
until = time.monotonic() + 60
while time.monotonic() < until:
    time.sleep(0.5)
    try:
        merge()
    except DatabaseError as error:
        assert "ancelled" in str(error) or "ABORTED" in str(error), error
        break
    client.command("INSERT INTO logs (Timestamp, Body) VALUES (now(), 'another')")
else:
    raise AssertionError("merges did not stop")
assert parts() > 1
pause.close()
merge()
assert parts() == 1
unlimited = MergePause(storage, min_free_bytes=0)
time.sleep(0.5)
merge()
unlimited.close()
client.close()
storage.close()
"""


def test_merges_stop_below_the_free_space_that_inserts_need(tmp_path: Path) -> None:
    copy_new_store(tmp_path / "store")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=collector_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
