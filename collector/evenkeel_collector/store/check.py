"""Checks whether bytes can be stored, using a copy of the store's tables that keeps nothing.

Every table that inserts pass through exists here with the engine Null, fed by copies of the same
views. Data that this copy refuses is bad; if only the store refuses it, the store is at fault.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import DatabaseError

from evenkeel.store import DATABASE
from evenkeel_collector.store.disk_room import check_room_to_change
from evenkeel_collector.store.storage import insert_segment

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

CHECK_DATABASE = f"{DATABASE}_check"
# Database names in the views' stored text; attribute names are quoted.
_QUALIFIER = re.compile(rf"(?<!['.\w]){DATABASE}\.")
_TABLES = """SELECT name, engine, create_table_query FROM system.tables
WHERE database = {database:String} AND engine != 'View' AND engine != 'Distributed'
ORDER BY engine = 'MaterializedView', name"""
# Errors of a store without space, time, memory, threads or permissions: the data is not at fault.
# Names are those of ClickHouse's src/Common/ErrorCodes.cpp.
TRANSIENT_CODES = frozenset({
    60,  # UNKNOWN_TABLE
    74, 75, 76, 77, 87, 88,  # a file cannot be read, written, opened, closed, sought, truncated
    81,  # UNKNOWN_DATABASE
    92,  # EMPTY_DATA_PASSED
    95, 96,  # CANNOT_READ_FROM_SOCKET, CANNOT_WRITE_TO_SOCKET
    159,  # TIMEOUT_EXCEEDED
    173,  # CANNOT_ALLOCATE_MEMORY
    201, 202,  # QUOTA_EXCEEDED, TOO_MANY_SIMULTANEOUS_QUERIES
    203,  # NO_FREE_CONNECTION
    204,  # CANNOT_FSYNC
    209, 210,  # SOCKET_TIMEOUT, NETWORK_ERROR
    225,  # NO_ZOOKEEPER
    236,  # ABORTED
    241,  # MEMORY_LIMIT_EXCEEDED
    242,  # TABLE_IS_READ_ONLY
    243,  # NOT_ENOUGH_SPACE
    252,  # TOO_MANY_PARTS
    279,  # ALL_CONNECTION_TRIES_FAILED
    285, 286,  # TOO_FEW_LIVE_REPLICAS, UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE
    319,  # UNKNOWN_STATUS_OF_INSERT
    394,  # QUERY_WAS_CANCELLED
    439,  # CANNOT_SCHEDULE_TASK: no thread is free
    497, 516,  # ACCESS_DENIED, AUTHENTICATION_FAILED
    745,  # SERVER_OVERLOADED
    999,  # KEEPER_EXCEPTION
})  # fmt: skip
OUT_OF_MEMORY_CODES = frozenset({173, 241})
STD_EXCEPTION = 1001
# It is whatever the C++ library raises: these come from memory and files, others
# may come from the data.
_STORES_EXCEPTION = re.compile(
    r"Code: 1001, type: std::\S*\b(bad_alloc|filesystem_error|system_error)\b"
)


class CheckStore:
    """The copy, which exists for the duration of a `with` block.

    Args:
        client: A client of the real store, used by this thread alone.
        insert_settings: The settings for inserting a log segment.

    Raises:
        ClickHouseError: If the store refuses to create it.
        OSError: If the disk has no room for it.
    """

    def __init__(self, client: Client, insert_settings: Mapping[str, str]) -> None:
        self._client = client
        self._insert_settings = insert_settings

    def __enter__(self) -> CheckStore:
        check_room_to_change(self._client)
        self._drop()
        self._client.command(f"CREATE DATABASE {CHECK_DATABASE}")
        rows = self._client.query(_TABLES, parameters={"database": DATABASE}).result_rows
        for name, engine, statement in rows:
            if engine == "MaterializedView":
                self._client.command(_QUALIFIER.sub(f"{CHECK_DATABASE}.", statement))
            else:
                self._client.command(
                    f"CREATE TABLE {CHECK_DATABASE}.{name} AS {DATABASE}.{name} ENGINE = Null"
                )
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def refusal(self, segment: bytes) -> str | None:
        """Return why a segment cannot be stored, or None if it can.

        Raises:
            ClickHouseError: If the store does not answer, or fails for another reason than the
                segment.
        """
        try:
            insert_segment(
                self._client, self._insert_settings, "check", io.BytesIO(segment), CHECK_DATABASE
            )
        except DatabaseError as error:
            if not is_refusal(error):
                raise
            return str(error)
        return None

    def fits(self, segment: bytes) -> bool:
        """Return whether the store has enough memory for a segment.

        Raises:
            ClickHouseError: If the store does not answer, or lacks something else.
        """
        try:
            self.refusal(segment)
        except DatabaseError as error:
            if not is_out_of_memory(error):
                raise
            return False
        return True

    def _drop(self) -> None:
        self._client.command(f"DROP DATABASE IF EXISTS {CHECK_DATABASE} SYNC")


def is_out_of_memory(error: Exception) -> bool:
    """Whether the store had too little memory."""
    return isinstance(error, DatabaseError) and error.code in OUT_OF_MEMORY_CODES


def is_refusal(error: Exception) -> bool:
    """Whether the store refused the data, as far as its error says."""
    if not isinstance(error, DatabaseError) or error.code is None:
        return False
    if error.code == STD_EXCEPTION:
        return not _STORES_EXCEPTION.search(str(error))
    return error.code not in TRANSIENT_CODES
