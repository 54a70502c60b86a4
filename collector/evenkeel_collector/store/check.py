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
from evenkeel_collector.store.storage import insert_segment

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

CHECK_DATABASE = f"{DATABASE}_check"
# Database names in the views' stored text; attribute names are quoted.
_QUALIFIER = re.compile(rf"(?<!['.\w]){DATABASE}\.")
_TABLES = """SELECT name, engine, create_table_query FROM system.tables
WHERE database = {database:String} AND engine != 'View' AND engine != 'Distributed'
ORDER BY engine = 'MaterializedView', name"""


class CheckStore:
    """The copy, which exists for the duration of a `with` block.

    Args:
        client: A client of the real store, used by this thread alone.
        insert_settings: The settings for inserting a log segment.

    Raises:
        ClickHouseError: If the store refuses to create it.
    """

    def __init__(self, client: Client, insert_settings: Mapping[str, str]) -> None:
        self._client = client
        self._insert_settings = insert_settings

    def __enter__(self) -> CheckStore:
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
            ClickHouseError: If the store does not answer.
        """
        try:
            insert_segment(
                self._client, self._insert_settings, "check", io.BytesIO(segment), CHECK_DATABASE
            )
        except DatabaseError as error:
            return str(error)
        return None

    def _drop(self) -> None:
        self._client.command(f"DROP DATABASE IF EXISTS {CHECK_DATABASE} SYNC")
