"""Exports tables of the embedded store as Parquet files, one per table and day."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError

from evenkeel.errors import ConfigurationError, first_line
from evenkeel_collector.log.synced_files import DRAFT_SUFFIX
from evenkeel_collector.store.data_folder import ID_FILE, hold
from evenkeel_collector.store.retention import TABLES
from evenkeel_collector.store.sql import quote
from evenkeel_collector.store.storage import open_embedded, store_log

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote."""

    files: int
    rows: int


def export_parquet(data_dir: Path, target: Path, tables: Sequence[str] | None) -> Exported:
    """Write `target/TABLE/YYYY-MM-DD.parquet` for each day that has rows.

    What is only in the log is stored first. Rollup states are written as values: percentiles as
    arrays of p50, p95, p99.

    Raises:
        ConfigurationError: If there is no such folder or table, a collector runs on the folder, or
            a file is there already.
    """
    if not (data_dir / ID_FILE).exists():
        raise ConfigurationError(f"{data_dir} (--data-dir) is not a collector's folder")
    for table in tables or ():
        if table not in TABLES:
            raise ConfigurationError(f"no table {table!r} to export; tables: {', '.join(TABLES)}")
    folder = hold(data_dir)
    try:
        storage = open_embedded(folder.store, folder.log)
        client = storage.connect()
        try:
            # What the collector did not store before it stopped belongs to the export.
            store_log(client, storage.insert_settings, folder.log)
            parts = [_export(client, table, target) for table in tables or TABLES]
        except (ClickHouseError, OSError) as error:
            reason = first_line(error, folder=target)
            raise ConfigurationError(f"cannot export to {target}: {reason}") from error
        finally:
            client.close()
            storage.close()
    finally:
        folder.release()
    return Exported(sum(part.files for part in parts), sum(part.rows for part in parts))


def _export(client: Client, table: str, target: Path) -> Exported:
    time = TABLES[table].time
    types = client.query(
        "SELECT name, type FROM system.columns WHERE database = currentDatabase()"
        " AND table = {table:String} ORDER BY position",
        parameters={"table": table},
    ).result_rows
    columns = ", ".join(
        f"finalizeAggregation(`{name}`) AS `{name}`"
        if kind.startswith("AggregateFunction")
        else f"`{name}`"
        for name, kind in types
    )
    folder = target / table
    folder.mkdir(parents=True, exist_ok=True)
    days = client.query(f"SELECT toDate({time}, 'UTC') AS day, count() FROM {table} GROUP BY day")
    num_rows = 0
    for day, count in sorted(days.result_rows):
        path = folder / f"{day:%Y-%m-%d}.parquet"
        if path.exists():
            raise ConfigurationError(f"{path} exists; export to another folder")
        draft = path.with_suffix(DRAFT_SUFFIX)
        draft.unlink(missing_ok=True)
        try:
            client.command(
                f"SELECT {columns} FROM {table} WHERE toDate({time}, 'UTC') = '{day:%Y-%m-%d}'"
                f" INTO OUTFILE {quote(str(draft.resolve()))} FORMAT Parquet"
            )
            _check_whole(client, draft, count)
            draft.rename(path)
        finally:
            draft.unlink(missing_ok=True)
        num_rows += count
    return Exported(len(days.result_rows), num_rows)


def _check_whole(client: Client, path: Path, num_rows: int) -> None:
    """Read a file that the engine wrote to its end: it ignores that a disk is full.

    Raises:
        OSError: If the file lacks something.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())
    try:
        found = client.query(
            f"SELECT countIf(NOT ignore(*)) FROM file({quote(str(path.resolve()))}, 'Parquet')"
        ).first_row[0]
    except ClickHouseError:
        found = 0
    if found != num_rows:
        raise OSError(errno.EIO, f"{path.stem}.parquet is incomplete: is the disk full?")
