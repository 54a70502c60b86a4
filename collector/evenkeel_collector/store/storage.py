"""Opens the store, chDB in this process or a ClickHouse server, through one client API."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError

from evenkeel.errors import ConfigurationError, MissingPartError, StoreError, first_line
from evenkeel.extras import how_to_install
from evenkeel.secret_text import hide_password
from evenkeel.store import DATABASE, check_url, read_login_refusal, read_reason
from evenkeel_collector.log.recovery import recover
from evenkeel_collector.log.repeats import SeenBodies, repeats_of
from evenkeel_collector.log.segment_format import read_bodies
from evenkeel_collector.store.cluster import cluster_schema, migrations_table
from evenkeel_collector.store.disk_room import check_room_to_change
from evenkeel_collector.store.held_requests import hold_client_requests
from evenkeel_collector.store.migrations import migrate, read_migrations
from evenkeel_collector.store.pricing import StoredPrices
from evenkeel_collector.store.request_columns import add_columns
from evenkeel_collector.store.rollups import InsertGate, Rollups
from evenkeel_collector.store.sql import quote
from evenkeel_collector.store.unfinished_inserts import forget_unfinished_inserts
from evenkeel_collector.store.views_of_others import set_views_of_others

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

# The database with tenants' views of the store (query/tenant_views.py).
TENANT_DATABASE = "evenkeel_tenant"
# How often an upgrade logs its progress through the log.
PROGRESS_S = 5.0

Connect = Callable[[], "Client"]

SEGMENT_SCHEMA = Path(__file__).parent / "schema" / "otlp_traces.proto"
# Searching each AND for a chain of comparisons takes half the analysis time of the largest view at
# every insert, and finds none (docs/decisions/0175). The plans of views leave nothing to optimise
# either: each reads the rows of one insert (docs/decisions/0200).
SHORT_ANALYSIS = {"optimize_and_compare_chain": "0", "query_plan_enable_optimizations": "0"}
# Keep slashes in arrays of text: the engine would write a/b as a\/b.
PLAIN_SLASHES = {"output_format_json_escape_forward_slashes": "0"}
# Inserts yield the CPU to queries and acknowledgements (docs/decisions/0180). The engine does
# nothing if it may not raise a thread's priority again.
BEHIND_QUERIES = {
    "os_threads_nice_value_query": "5",
    "os_threads_nice_value_materialized_view": "5",
}


@dataclass(frozen=True, slots=True)
class Storage:
    """An open store whose tables are up to date.

    Attributes:
        connect: Returns a read-write client for the calling thread.
        embedded_path: chDB's folder; None with a server.
        insert_settings: Settings of every insert of a log segment, above all its schema.
        close: Closes the store itself; callers close their own clients.
        rollups: The rollups, up to date.
        gate: The gate that every insert of a segment passes.
        prices: What new requests cost.
    """

    connect: Connect
    embedded_path: Path | None
    insert_settings: Mapping[str, str]
    close: Callable[[], None]
    rollups: Rollups
    gate: InsertGate
    prices: StoredPrices


def open_embedded(folder: Path, log: Path | None = None) -> Storage:
    """Open chDB in `folder`, which only one process may do at a time.

    Args:
        folder: chDB's folder.
        log: The log's folder; its segments are stored before tables of another version are changed.

    Raises:
        ConfigurationError: If the folder cannot be opened, or its tables are of another version.
        MissingPartError: If chDB is not installed.
    """
    if find_spec("chdb") is None:
        raise MissingPartError(
            "the embedded store needs the module 'chdb'; install it with: "
            f"{how_to_install('embedded')}; or use --clickhouse URL"
        )
    path = folder.resolve()
    # By path: chDB copies a schema given as text to the working directory.
    insert_settings = {
        "format_schema": f"{SEGMENT_SCHEMA}:Segment",
        **PLAIN_SLASHES,
        **SHORT_ANALYSIS,
        **BEHIND_QUERIES,
    }

    def connect() -> Client:
        return clickhouse_connect.get_client(interface="chdb", path=str(path), database=DATABASE)

    try:
        forget_unfinished_inserts(path)
        # Each start makes the database of tenants' views anew. On a full disk its file stays empty,
        # and with that the engine does not open.
        (path / "metadata" / f"{TENANT_DATABASE}.sql").unlink(missing_ok=True)
        # An open client keeps the engine loaded: otherwise each connect would load the store again.
        anchor = clickhouse_connect.get_client(interface="chdb", path=str(path))
        if not (path / "metadata" / f"{DATABASE}.sql").exists():
            check_room_to_change(anchor)
        anchor.command(f"CREATE DATABASE IF NOT EXISTS {DATABASE} ENGINE = Atomic")
        client = connect()
        migrate(client, before_upgrade=partial(store_log, client, insert_settings, log))
        add_columns(client)
        hold_client_requests(client)
        set_views_of_others(client)
        client.close()
        gate = InsertGate()
        rollups = Rollups(connect, gate)
    except (ClickHouseError, OSError, StoreError) as error:
        reason = first_line(error, folder=path)
        raise ConfigurationError(f"cannot open the store in {path}: {reason}") from error
    prices = StoredPrices(connect)
    return Storage(connect, path, insert_settings, anchor.close, rollups, gate, prices)


def open_server(url: str, cluster: str | None = None, log: Path | None = None) -> Storage:
    """Use the ClickHouse server at `url`; with `cluster`, make the tables on all its servers.

    Args:
        url: The server's address.
        cluster: Its cluster's name.
        log: As for `open_embedded`.

    Raises:
        ConfigurationError: If the address is not HTTP, the server does not answer, or its tables
            are of another version.
    """
    check_url(url)

    def connect(database: str | None = DATABASE) -> Client:
        # No sessions: the inserter and the SLO evaluation may query concurrently.
        return clickhouse_connect.get_client(
            dsn=url,
            secure=url.startswith("https:"),
            database=database,
            autogenerate_session_id=False,
        )

    schema = cluster_schema(cluster, read_migrations()) if cluster else None
    try:
        first = connect(None)
        where = f" ON CLUSTER '{cluster}'" if cluster else ""
        first.command(f"CREATE DATABASE IF NOT EXISTS {DATABASE}{where} ENGINE = Atomic")
        first.close()
        client = connect()
        insert_settings = {
            "format_schema_source": "string",
            "format_schema": SEGMENT_SCHEMA.read_text(encoding="utf-8"),
            "format_schema_message_name": "Segment",
            **PLAIN_SLASHES,
            **_known_settings(client, SHORT_ANALYSIS),
        }
        before_upgrade = partial(store_log, client, insert_settings, log)
        if schema is None:
            migrate(client, before_upgrade=before_upgrade)
            add_columns(client)
            hold_client_requests(client)
            set_views_of_others(client)
        else:
            migrate(
                client,
                render=schema.render,
                table=migrations_table(schema.cluster),
                before_upgrade=before_upgrade,
            )
            add_columns(client, schema.render, cluster=schema.cluster)
            hold_client_requests(client, schema.render)
            set_views_of_others(client, schema.render)
        client.close()
        gate = InsertGate()
        rollups = (
            Rollups(connect, gate) if schema is None else Rollups(connect, gate, schema.render)
        )
    except (ClickHouseError, OSError, StoreError) as error:
        raise ConfigurationError(_describe_refusal(error, url)) from error
    prices = StoredPrices(connect) if schema is None else StoredPrices(connect, schema.render)
    return Storage(connect, None, insert_settings, lambda: None, rollups, gate, prices)


def _describe_refusal(error: Exception, url: str) -> str:
    shown = hide_password(url)
    refusal = read_login_refusal(error)
    if refusal is not None:
        refusal = refusal.replace(url, shown)
        return (
            f"the ClickHouse at {shown} refuses the login: {refusal}; correct user and password in "
            "its address"
        )
    reason = read_reason(error).replace(url, shown)
    if isinstance(error, StoreError) or "DB::Exception" in str(error):
        return f"the ClickHouse at {shown} cannot be used: {reason}"
    return f"no ClickHouse answers at {shown}: {reason}; is it running?"


def insert_segment(
    client: Client,
    insert_settings: Mapping[str, str],
    name: str,
    segment: IO[bytes],
    database: str = DATABASE,
) -> None:
    """Insert a sealed segment; if the store already has one under `name`, nothing changes.

    Raises:
        ClickHouseError: If the store is unreachable, or refuses the segment.
    """
    client.raw_insert(
        f"{database}.otlp_traces",
        insert_block=segment,
        fmt="ProtobufSingle",
        settings={**insert_settings, **_token_settings(name)},
    )


def insert_segment_file(
    client: Client, insert_settings: Mapping[str, str], name: str, path: Path
) -> None:
    """Insert a sealed segment into the embedded store, which reads the file itself.

    Raises:
        ClickHouseError: As `insert_segment`.
    """
    settings = ", ".join(
        f"{key} = {quote(value)}"
        for key, value in {**insert_settings, **_token_settings(name)}.items()
    )
    # raw_insert would make chDB read a copy of the file. A path may look like a pattern to chDB, a
    # file descriptor does not.
    with path.open("rb") as segment:
        client.command(
            f"INSERT INTO {DATABASE}.otlp_traces FROM INFILE '/proc/self/fd/{segment.fileno()}' "
            f"SETTINGS {settings} FORMAT ProtobufSingle"
        )


def store_log(client: Client, insert_settings: Mapping[str, str], log: Path | None) -> None:
    """Store the log's segments through the views as they are, which may have stored some already.

    Before an upgrade, because if a migration puts a table between two others, the tokens after it
    change: a fully inserted segment that a kill kept from being deleted would count twice. A
    segment that cannot be stored now is left to the inserter.
    """
    if log is None:
        return
    segments = recover(log).segments
    repeats = SeenBodies(repeats_of(log))
    told_s = time.monotonic()
    for number, segment in enumerate(segments):
        if time.monotonic() - told_s > PROGRESS_S:
            told_s = time.monotonic()
            logger.info("storing the log first segment=%d of=%d", number, len(segments))
        try:
            with segment.path.open("rb") as file:
                insert_segment(client, insert_settings, segment.name, file)
        except ClickHouseError as error:
            logger.warning(
                "segment left for later segment=%s error=%s",
                segment.name,
                first_line(error),
            )
            continue
        repeats.remember_marks(read_bodies(segment.path.read_bytes(), segment.name))
        repeats.save()
        segment.path.unlink()


def _known_settings(client: Client, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the server knows; older servers refuse unknown ones."""
    names = {name for (name,) in client.query("SELECT name FROM system.settings").result_rows}
    return {name: value for name, value in settings.items() if name in names}


def _token_settings(name: str) -> dict[str, str]:
    return {
        "insert_deduplication_token": name,
        "deduplicate_blocks_in_dependent_materialized_views": "1",
    }
