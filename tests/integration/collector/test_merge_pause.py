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

EXPIRED = """
import sys, time
from pathlib import Path
from evenkeel_collector.store.merge_pause import MergePause
from evenkeel_collector.store.retention import apply_retention, read_retention
from evenkeel_collector.store.storage import open_embedded

storage = open_embedded(Path(sys.argv[1]) / "store")
client = storage.connect()

def insert(table, column, days):
    client.command(
        f"INSERT INTO {table} ({column}) SELECT now() - INTERVAL {days} DAY + INTERVAL 1 SECOND"
    )

def num(table):
    return client.query(f"SELECT count() FROM {table}").first_row[0]

apply_retention(client, read_retention("logs=1d, feedback=1d, engine_state=1d"))
client.command("SYSTEM STOP MERGES")
for table, column in (("logs", "Timestamp"), ("feedback", "time"), ("engine_state", "time")):
    insert(table, column, 1)
    insert(table, column, 0)
# Kept for longer, and for ever: what the parts say of themselves is from the earlier rule.
for table, ttl, comment in (
    ("feedback", "MODIFY TTL toDateTime(time) + INTERVAL 3 DAY",
     "kept for: toDateTime(time) + toIntervalSecond(259200) DELETE"),
    ("engine_state", "REMOVE TTL", ""),
):
    client.command(f"ALTER TABLE {table} {ttl} SETTINGS materialize_ttl_after_modify = 0")
    client.command(f"ALTER TABLE {table} MODIFY COMMENT '{comment}'")
time.sleep(3)
expired = ("SELECT count() FROM system.parts WHERE active"
           " AND toUnixTimestamp(delete_ttl_info_max) BETWEEN 1 AND toUnixTimestamp(now())")
assert client.query(expired).first_row == (3,)
assert (num("logs"), num("feedback"), num("engine_state")) == (2, 2, 2)
pause = MergePause(storage, min_free_bytes=1 << 60)
until = time.monotonic() + 60
while num("logs") > 1 and time.monotonic() < until:
    time.sleep(0.2)
time.sleep(1)
assert (num("logs"), num("feedback"), num("engine_state")) == (1, 2, 2)
pause.close()
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


def test_what_has_expired_goes_although_merges_are_stopped(tmp_path: Path) -> None:
    """Otherwise a disk that retention keeps from filling would stay full."""
    copy_new_store(tmp_path / "store")
    done = subprocess.run(
        [sys.executable, "-c", EXPIRED, str(tmp_path)],
        env=collector_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
