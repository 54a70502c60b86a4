"""The write-ahead log is turned on although others hold the file for a moment."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evenkeel.sqlite_wal import use_write_ahead_log


def test_a_locked_file_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with (
        closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as holder,
        closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection,
    ):
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            use_write_ahead_log(connection, 0.02)
        release = threading.Timer(0.05, lambda: holder.execute("COMMIT"))
        release.start()
        use_write_ahead_log(connection, 60.0)
        release.join()
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(("code", "is_waited_for"), [(5, True), (261, True), (10, False)])
def test_a_recovery_is_waited_for_and_a_broken_disk_is_not(code: int, is_waited_for: bool) -> None:
    asked: list[str] = []

    class Connection:
        def execute(self, sql: str) -> None:
            asked.append(sql)
            if len(asked) == 1:
                error = sqlite3.OperationalError("said by SQLite")
                error.sqlite_errorcode = code
                raise error

    connection: Any = Connection()
    if is_waited_for:
        use_write_ahead_log(connection, 60.0)
        assert len(asked) == 2
    else:
        with pytest.raises(sqlite3.OperationalError):
            use_write_ahead_log(connection, 60.0)
