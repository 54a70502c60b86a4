"""A store on a disk without any room: what happens to its tables, and that it opens again."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.collector_process import collector_environment, copy_new_store

MOUNT = "mount -t tmpfs -o size=64m tmpfs {folder}"
# In namespaces of its own a process may mount a small disk, root or not; some containers allow
# neither.
NAMESPACES = (["--user", "--map-root-user", "--mount"], ["--mount"])


def small_disk() -> list[str] | None:
    """Return the command that runs a script which may mount; None if nothing here may."""
    for namespaces in NAMESPACES:
        command = ["unshare", *namespaces, "sh", "-c"]
        with contextlib.suppress(OSError):
            if not subprocess.run([*command, MOUNT.format(folder="/mnt")], check=False).returncode:
                return command
    return None


SMALL_DISK = small_disk()


def on_a_small_disk(test: Callable[..., None]) -> Callable[..., None]:
    """Leave a test out where no small disk can be had."""
    vars(test)["__test__"] = SMALL_DISK is not None
    return test


PROGRAM = """
import os, sys
from pathlib import Path
from evenkeel.errors import EvenkeelError
from evenkeel.prices.price_file import PriceFile
from evenkeel_collector.store.migrations import run_statement
from evenkeel_collector.store.retention import apply_retention, read_retention
from evenkeel_collector.store.storage import open_embedded
from evenkeel_collector.store.check import CheckStore

folder = Path(sys.argv[1])

def fill():
    fd = os.open(folder / "filler", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        while True:
            os.write(fd, bytes(4096))
    except OSError:
        os.close(fd)

def refused(change):
    try:
        change()
    except (EvenkeelError, OSError) as error:
        assert "the disk has 0 MiB free" in str(error), error
    else:
        raise AssertionError("not refused")

def alter(client, statement):
    run_statement(client, statement, lambda statement: [statement])

if sys.argv[2] in ("start", "new"):
    fill()
if sys.argv[2] == "new":
    (folder / "other").mkdir()
    refused(lambda: open_embedded(folder / "other"))
    os.unlink(folder / "filler")
    open_embedded(folder / "other").close()
    sys.exit()
storage = open_embedded(folder / "store")
storage.prices.use(None)
if sys.argv[2] == "change":
    fill()
    client = storage.connect()
    refused(lambda: alter(client, "CREATE OR REPLACE VIEW slo_judged AS SELECT 1 AS one"))
    refused(lambda: alter(client, "ALTER TABLE requests ADD COLUMN more String"))
    refused(lambda: alter(client, "ALTER TABLE requests UPDATE cost = 1 WHERE 1"))
    refused(lambda: storage.prices.use(PriceFile(currency="EUR")))
    refused(lambda: apply_retention(client, read_retention("spans=1d")))
    refused(lambda: CheckStore(client, storage.insert_settings).__enter__())
    client.close()
storage.close()
empty = [path for path in folder.rglob("*.sql") if path.stat().st_size == 0]
assert empty in ([], [folder / "store" / "metadata" / "evenkeel_tenant.sql"]), empty
os.unlink(folder / "filler")
"""
USUAL = """
import sys
from pathlib import Path
from evenkeel_collector.store.storage import open_embedded

storage = open_embedded(Path(sys.argv[1]) / "store")
storage.prices.use(None)
storage.close()
"""


@on_a_small_disk
@pytest.mark.parametrize("when", ["new", "start", "change"])
def test_a_full_disk_costs_no_table_its_definition(tmp_path: Path, when: str) -> None:
    made, disk = tmp_path / "made", tmp_path / "disk"
    copy_new_store(made / "store")
    disk.mkdir()
    python = f"{sys.executable} -c"
    script = " && ".join([
        MOUNT.format(folder=disk),
        f"cp -a {made}/store {disk}",
        f'{python} "$PROGRAM" {disk} {when}',
        f'{python} "$USUAL" {disk}',
    ])  # fmt: skip
    assert SMALL_DISK is not None
    done = subprocess.run(
        [*SMALL_DISK, script],
        env={**collector_environment(), "PROGRAM": PROGRAM, "USUAL": USUAL},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_usual_start_changes_no_definition(tmp_path: Path) -> None:
    copy_new_store(tmp_path / "store")
    tmp_path.joinpath("store", "metadata", "evenkeel_tenant.sql").unlink(missing_ok=True)

    def definitions() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*.sql")}

    before = definitions()
    subprocess.run(
        [sys.executable, "-c", USUAL, str(tmp_path)],
        env=collector_environment(), check=True,
    )  # fmt: skip
    assert definitions() == before


EXPORT = """
import sys
from pathlib import Path
import clickhouse_connect
from evenkeel.errors import ConfigurationError
from evenkeel_collector.store.data_folder import hold
from evenkeel_collector.store.export import export_parquet

data, target = map(Path, sys.argv[1:])
hold(data).release()
client = clickhouse_connect.get_client(
    interface="chdb", path=str(data / "store"), database="evenkeel"
)
client.command(
    "INSERT INTO logs (Timestamp, Body) SELECT toDateTime64(day * 86400, 9, 'UTC'),"
    " randomPrintableASCII(if(day = 20000, 10, 3000)) FROM numbers(2000)"
    " ARRAY JOIN [20000, 20001] AS day"
)
client.close()
try:
    print(export_parquet(data, target, ["logs"]))
except ConfigurationError as error:
    print(error)
print(sorted(path.name for path in target.rglob("*.*")))
"""


@on_a_small_disk
@pytest.mark.parametrize("size", ["2m", "64m"])
def test_an_export_that_does_not_fit_is_no_export(tmp_path: Path, size: str) -> None:
    data, disk = tmp_path / "data", tmp_path / "disk"
    copy_new_store(data / "store")
    disk.mkdir()
    script = MOUNT.format(folder=disk).replace("64m", size)
    script += f' && {sys.executable} -c "$EXPORT" {data} {disk}'
    assert SMALL_DISK is not None
    done = subprocess.run(
        [*SMALL_DISK, script],
        env={**collector_environment(), "EXPORT": EXPORT},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said, files = done.stdout.splitlines()
    if size == "64m":
        assert said == "Exported(files=2, rows=4000)"
        assert files == "['2024-10-04.parquet', '2024-10-05.parquet']"
        return
    wanted = f"cannot export to {disk}: 2024-10-05.parquet is incomplete: is the disk full?"
    assert said == wanted
    assert files == "['2024-10-04.parquet']"
