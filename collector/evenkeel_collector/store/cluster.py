"""Rewrites the statements of a single store for a ClickHouse cluster.

Each table that keeps rows becomes two: `NAME_local`, replicated within its shard, and `NAME`,
Distributed over all shards, for readers. Log segments go into the Null table of the node that the
collector is connected to, whose views fill that node's local tables: an insert stays on one shard,
so every replica that could receive it again knows its deduplication token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from evenkeel.errors import ConfigurationError
from evenkeel.store import DATABASE
from evenkeel_collector.store.migrations import Migration

LOCAL_SUFFIX = "_local"
# Filled in by each server from its own <macros>.
REPLICA_ARGUMENTS = f"'/clickhouse/tables/{{{{shard}}}}/{DATABASE}/{{name}}', '{{{{replica}}}}'"
# One copy for the whole cluster: every server has been migrated, or none.
EVERYWHERE_ARGUMENTS = f"'/clickhouse/tables/{DATABASE}/{{name}}', '{{{{shard}}}}-{{{{replica}}}}'"

_CREATE_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+)")
_CREATE_VIEW = re.compile(
    r"(?P<head>CREATE (?:MATERIALIZED |OR REPLACE )?VIEW (?:IF NOT EXISTS )?\w+)"
    r"(?: TO (?P<to>\w+))?"
)
_ALTER = re.compile(r"ALTER TABLE (\w+)")
_OF_ROWS = re.compile(r"\s(MODIFY SETTING|(ADD|MATERIALIZE) PROJECTION|UPDATE|DELETE)\s")
_ORDER = re.compile(r",\s+MODIFY ORDER BY \([^)]*\)")
_RENAME_VIEW = re.compile(r"RENAME TABLE \w+ TO \w+(, \w+ TO \w+)*")
_DROP_VIEW = re.compile(r"DROP VIEW IF EXISTS \w+")
_ENGINE = re.compile(r"ENGINE = (\w*MergeTree)(?:\(\))?(?=\W|$)")
_CLUSTER_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class ClusterSchema:
    """Rewrites statements for one cluster.

    Attributes:
        cluster: Its name, as in `<remote_servers>`.
        tables: Names of the tables that keep rows.
    """

    cluster: str
    tables: frozenset[str]

    def render(self, statement: str) -> list[str]:
        """Return the cluster's statements for one statement of a single store.

        Raises:
            ConfigurationError: If this kind of statement is not supported.
        """
        head = _without_comments(statement)
        if match := _CREATE_TABLE.match(head):
            return self._create_table(head, match[1])
        if match := _CREATE_VIEW.match(head):
            return [self._create_view(head, match)]
        if match := _ALTER.match(head):
            return self._alter(head, match[1])
        if match := _DROP_VIEW.match(head) or _RENAME_VIEW.match(head):
            return [f"{match[0]} ON CLUSTER '{self.cluster}'"]
        raise ConfigurationError(f"no cluster form for the statement {head[:60]!r}")

    def _create_table(self, statement: str, name: str) -> list[str]:
        if name not in self.tables:
            return [self._on_cluster(statement, name, name)]
        local = f"{name}{LOCAL_SUFFIX}"
        arguments = REPLICA_ARGUMENTS.format(name=local)
        made = self._on_cluster(statement, name, local)
        made = _ENGINE.sub(rf"ENGINE = Replicated\1({arguments})", made)
        made = made.replace(
            "non_replicated_deduplication_window", "replicated_deduplication_window"
        )
        return [made, self._distributed(name)]

    def _distributed(self, name: str) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {name} ON CLUSTER '{self.cluster}'"
            f" AS {name}{LOCAL_SUFFIX}\n"
            f"ENGINE = Distributed('{self.cluster}', currentDatabase(), '{name}{LOCAL_SUFFIX}',"
            " rand())"
        )

    def _create_view(self, statement: str, match: re.Match[str]) -> str:
        head, target = f"{match['head']} ON CLUSTER '{self.cluster}'", match["to"]
        if target is None:
            # A plain view reads all shards.
            return head + statement[match.end() :]
        body = self._read_local(statement[match.end() :])
        suffix = LOCAL_SUFFIX if target in self.tables else ""
        return f"{head} TO {target}{suffix}{body}"

    def _alter(self, statement: str, name: str) -> list[str]:
        rest = statement[len(f"ALTER TABLE {name}") :]
        if name not in self.tables:
            return [f"ALTER TABLE {name} ON CLUSTER '{self.cluster}'{self._read_local(rest)}"]
        local = f"{name}{LOCAL_SUFFIX}"
        # Storage changes, and the order of rows, apply to the local table only.
        names = {local: rest} if _OF_ROWS.match(rest) else {local: rest, name: _ORDER.sub("", rest)}
        return [f"ALTER TABLE {each} ON CLUSTER '{self.cluster}'{r}" for each, r in names.items()]

    def _on_cluster(self, statement: str, name: str, new_name: str) -> str:
        begin = f"CREATE TABLE IF NOT EXISTS {name}"
        return (
            f"CREATE TABLE IF NOT EXISTS {new_name} ON CLUSTER '{self.cluster}'"
            + (statement[len(begin) :])
        )

    def _read_local(self, query: str) -> str:
        """Make a view read only this node's rows; the old table name stays as an alias."""
        names = "|".join(sorted(self.tables, key=len, reverse=True))
        return re.sub(rf"\b(FROM|JOIN) ({names})\b", rf"\1 \2{LOCAL_SUFFIX} AS \2", query)


def cluster_schema(cluster: str, migrations: Sequence[Migration]) -> ClusterSchema:
    """Return the rewriter for a cluster.

    Raises:
        ConfigurationError: If the name is not valid.
    """
    if not _CLUSTER_NAME.fullmatch(cluster):
        raise ConfigurationError(f"--clickhouse-cluster: {cluster!r} is not a valid cluster name")
    tables = {
        match[1]
        for migration in migrations
        for statement in migration.statements
        if (match := _CREATE_TABLE.match(_without_comments(statement)))
        and _ENGINE.search(statement)
    }
    return ClusterSchema(cluster, frozenset(tables))


def migrations_table(cluster: str) -> str:
    """Return the statement that creates a cluster's table of applied migrations."""
    arguments = EVERYWHERE_ARGUMENTS.format(name="schema_migrations")
    return (
        f"CREATE TABLE IF NOT EXISTS schema_migrations ON CLUSTER '{cluster}' (\n"
        "    number UInt32, name String, checksum String, applied_at DateTime64(3, 'UTC')\n"
        f") ENGINE = ReplicatedMergeTree({arguments}) ORDER BY number"
    )


def _without_comments(statement: str) -> str:
    """Return the statement without leading comments; strings contain no `--`."""
    return re.sub(r"--[^\n]*", "", statement).strip()
