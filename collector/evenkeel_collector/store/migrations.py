"""Changes the store's tables and views: numbered migrations, applied in order and recorded.

A migration is a file `NNNN_name.sql`, or a folder of that name whose `.sql` files are its parts.
The first one creates all tables; older stores cannot be opened.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from evenkeel.errors import ConfigurationError
from evenkeel.store import DATABASE
from evenkeel_collector.store.disk_room import check_room_to_change
from evenkeel_collector.store.sql import MAX_QUERY_SIZE, quote

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

Render = Callable[[str], list[str]]

# What to do about a store that this version does not open.
_WAYS_OUT = (
    "the version that wrote it opens it and, if it is embedded, writes its tables as files: "
    "`evenkeel store export parquet FOLDER`; this version needs an empty store, in another "
    "--data-dir, or on another server if it is one of --clickhouse"
)
_NAME = re.compile(r"(\d{4})_(\w+?)(\.sql)?")
# Checksum of the last migration that the first one replaced: it created the same tables.
_REPLACED = "8a2430c6a0536443fc203eed99d3a1f5c7b6a04ad34faa5a7e2038d5dac47d4f"
_TABLE = """CREATE TABLE IF NOT EXISTS schema_migrations (
    number UInt32, name String, checksum String, applied_at DateTime64(3, 'UTC')
) ENGINE = MergeTree ORDER BY number"""

# After `ALTER TABLE … MODIFY QUERY`, the engine gives a view's inserts a different token, until the
# view is renamed or the engine restarts (docs/decisions/0173).
_CHANGE = re.compile(r"^ALTER TABLE (\w+) MODIFY QUERY\s(.*)", re.MULTILINE | re.DOTALL)
_AWAY = "__changed"
_VIEW = re.compile(r"^CREATE OR REPLACE VIEW (\w+) AS\s(.*)", re.MULTILINE | re.DOTALL)
_DEFAULT = re.compile(r"ALTER TABLE (\w+) MODIFY COLUMN (\w+) (\S+) DEFAULT (.*)", re.DOTALL)
# What the engine puts before a table's name, but not in a literal, which is matched first.
_DATABASE = re.compile(rf"('(?:[^'\\]|\\.)*')|\b((?:FROM|JOIN) ){DATABASE}\.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Migration:
    """A numbered change; its statements are safe to repeat after a crash in the middle."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """Its SHA-256, so that a change of an applied migration is noticed."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def statements(self) -> list[str]:
        """The statements: each ends with a semicolon at the end of a line."""
        return [part for part in re.split(r";[ \t]*(?:\n|$)", self.sql) if part.strip()]


def read_migrations() -> list[Migration]:
    """Return the migrations of this version, by number.

    Raises:
        ConfigurationError: If two of them share a number.
    """
    migrations = []
    for entry in (files("evenkeel_collector.store") / "schema").iterdir():
        if match := _NAME.fullmatch(entry.name):
            parts = [entry] if match[3] else sorted(entry.iterdir(), key=lambda part: part.name)
            sql = "\n".join(part.read_text(encoding="utf-8") for part in parts)
            migrations.append(Migration(int(match[1]), match[2], sql))
    migrations.sort(key=lambda migration: migration.number)
    numbers = [migration.number for migration in migrations]
    if len(set(numbers)) < len(numbers):
        raise ConfigurationError(f"two migrations in store/schema share a number: {numbers}")
    return migrations


def migrate(
    client: Client,
    render: Render = lambda statement: [statement],
    table: str = _TABLE,
    before_upgrade: Callable[[], None] = lambda: None,
) -> list[Migration]:
    """Apply the missing migrations and return them.

    Args:
        client: A client of the store, whose database exists.
        render: Returns what to run instead of a statement, such as its cluster form.
        table: The statement that creates the table of applied migrations.
        before_upgrade: Called if the store has rows and lacks a migration.

    Raises:
        ConfigurationError: If the store was made by another version of the same migrations, or is
            older than the first of them.
    """
    client.command(table)
    rows = client.query("SELECT number, checksum FROM schema_migrations").result_rows
    applied: dict[int, str] = dict(rows)
    migrations = read_migrations()
    oldest, newest = migrations[0].number, max(applied, default=0)
    if newest > migrations[-1].number:
        raise ConfigurationError(
            f"the store has migration {newest:04d}, made by a newer evenkeel: upgrade; {_WAYS_OUT}"
        )
    if applied and newest < oldest:
        raise ConfigurationError(
            f"the store is at migration {newest:04d}, and this evenkeel only opens stores at "
            f"{oldest:04d} or later; {_WAYS_OUT}"
        )
    name_views_back(client, render)
    missing = [migration for migration in migrations if migration.number not in applied]
    for migration in migrations:
        known = applied.get(migration.number, migration.checksum)
        if known not in (migration.checksum, _REPLACED):
            raise ConfigurationError(
                f"migration {migration.number:04d}_{migration.name} has changed since this store "
                f"was made, so it is of another version; {_WAYS_OUT}"
            )
    if applied and missing:
        before_upgrade()
    for migration in missing:
        for statement in migration.statements:
            run_statement(client, statement, render)
        client.insert(
            "schema_migrations",
            [[migration.number, migration.name, migration.checksum, _now(client)]],
            column_names=["number", "name", "checksum", "applied_at"],
        )
        logger.info("migration applied number=%04d name=%s", migration.number, migration.name)
    return missing


def _now(client: Client) -> object:
    return client.query("SELECT now64(3, 'UTC')").first_row[0]


def run_statement(client: Client, statement: str, render: Render) -> None:
    """Run a statement; if it changes a view's query, the view keeps its tokens.

    What a single store has already is not changed: that can take a second, and is not possible on a
    full disk. In a cluster, another server may differ.

    Args:
        client: A client of the store.
        statement: Without its semicolon.
        render: Returns what to run instead, such as its cluster form.

    Raises:
        OSError: If the disk has no room for a change.
    """
    statements = render(statement)
    if statements != [statement] or not _is_done(client, statement):
        check_room_to_change(client)
        for each in statements:
            client.command(each, settings={"max_query_size": MAX_QUERY_SIZE})
    change = _CHANGE.search(statement)
    if change is not None:
        # Also if a start was killed between the change and this.
        keep_tokens(client, change[1], render)


def _is_done(client: Client, statement: str) -> bool:
    """Tell whether a statement would change nothing, as far as that is easily seen."""
    if change := _CHANGE.search(statement):
        return _has_query(client, *change.groups())
    if view := _VIEW.search(statement):
        # One without columns of its own, as its tables had them, has parameters.
        sql = f"SELECT count() FROM system.columns WHERE {_named('table', view[1])}"
        return not client.query(sql).first_row[0] and _has_query(client, *view.groups())
    if default := _DEFAULT.fullmatch(statement):
        table, column, type_, expression = default.groups()
        rows = client.query(
            "SELECT type, 'SELECT ' || default_expression,"
            f" formatQuerySingleLine({quote(f'SELECT {expression}')}) FROM system.columns"
            f" WHERE {_named('table', table)} AND name = {quote(column)}",
            settings={"max_query_size": 2 * MAX_QUERY_SIZE},
        ).result_rows
        return any(kind == type_ and present == wanted for kind, present, wanted in rows)
    return False


def _named(column: str, name: str) -> str:
    return f"database = '{DATABASE}' AND {column} = {quote(name)}"


def _has_query(client: Client, view: str, query: str) -> bool:
    """Tell whether a view has this query, as the engine prints it but for the tables' database."""
    rows = client.query(
        f"SELECT as_select, formatQuerySingleLine({quote(query)}) FROM system.tables"
        f" WHERE {_named('name', view)}",
        settings={"max_query_size": 2 * MAX_QUERY_SIZE},
    ).result_rows
    return any(_DATABASE.sub(r"\1\2", present) == wanted for present, wanted in rows)


def keep_tokens(client: Client, view: str, render: Render) -> None:
    """Rename a view and back: a changed view's inserts get their old tokens again."""
    away = view + _AWAY
    for each in render(f"RENAME TABLE {view} TO {away}, {away} TO {view}"):
        client.command(each)


def name_views_back(client: Client, render: Render) -> None:
    """Restore the names of views that an interrupted `run_statement` left renamed."""
    rows = client.query(
        "SELECT name FROM system.tables"
        f" WHERE database = currentDatabase() AND endsWith(name, '{_AWAY}')"
    ).result_rows
    for (name,) in rows:
        for each in render(f"RENAME TABLE {name} TO {name.removesuffix(_AWAY)}"):
            client.command(each)
