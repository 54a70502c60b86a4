"""SQLite's write-ahead log, turned on although others open the file at the same moment."""

from __future__ import annotations

import sqlite3
import time

_RETRY_S = 0.01


def use_write_ahead_log(connection: sqlite3.Connection, patience_s: float) -> None:
    """Turn the log on; of two connections that do so at once, SQLite fails one without waiting.

    Args:
        connection: A connection outside any transaction.
        patience_s: How long to try.

    Raises:
        sqlite3.Error: If the file is still locked then, or cannot be used.
    """
    give_up_s = time.monotonic() + patience_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # Its low byte: others say why, such as a recovery after a crash.
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > give_up_s:
                raise
            time.sleep(_RETRY_S)
        else:
            return
