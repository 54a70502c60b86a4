"""Retention: a TTL per table, with overrides per tenant."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evenkeel.durations import parse_duration_s
from evenkeel.errors import ConfigurationError, StoreError, first_line
from evenkeel_collector.store.cluster import LOCAL_SUFFIX
from evenkeel_collector.store.disk_room import check_room_to_change
from evenkeel_collector.store.sql import quote

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

# Marks the comment that records a table's TTL, which changes only with the setting.
COMMENT_PREFIX = "kept for: "
MIN_KEEP_S = 3600
# The store adds it to 32-bit times.
MAX_KEEP_S = 7300 * 86_400


@dataclass(frozen=True, slots=True)
class _Table:
    time: str
    # None if rows have no tenant.
    tenant: str | None


TABLES: Mapping[str, _Table] = {
    "spans": _Table(
        "toDateTime(Timestamp)",
        "if(SpanAttributes['evenkeel.tenant'] != '', SpanAttributes['evenkeel.tenant'],"
        " ResourceAttributes['evenkeel.tenant'])",
    ),
    "logs": _Table(
        "TimestampTime",
        "if(LogAttributes['evenkeel.tenant'] != '', LogAttributes['evenkeel.tenant'],"
        " ResourceAttributes['evenkeel.tenant'])",
    ),
    "requests": _Table("toDateTime(time)", "ifNull(tenant, '')"),
    "requests_1m": _Table("minute", "tenant"),
    "requests_1h": _Table("hour", "tenant"),
    "engine_state": _Table("toDateTime(time)", "resource_attributes['evenkeel.tenant']"),
    "engine_steps": _Table("toDateTime(time)", None),
    "eval_results": _Table("toDateTime(time)", "attributes['evenkeel.tenant']"),
    "feedback": _Table("toDateTime(time)", "ifNull(tenant, '')"),
    "live_evaluations": _Table("toDateTime(time)", "ifNull(tenant, '')"),
    "session_parts": _Table("toDateTime(day)", "tenant"),
    "session_tools": _Table("toDateTime(time)", "tenant"),
    "session_traces": _Table("toDateTime(day)", "tenant"),
}
_RULE = re.compile(r"(?:(?P<tenant>[^/=,]+)/)?(?P<table>\w+)\s*=\s*(?P<keep>[\w.]+)")


@dataclass(frozen=True, slots=True)
class Retention:
    """Seconds that rows of one table are kept; None means forever."""

    keep_s: int | None
    keep_s_of_tenant: Mapping[str, int]

    def ttl(self, table: str) -> str:
        """Return the TTL expression for a table; empty if everything is kept."""
        columns = TABLES[table]
        parts = [
            f"{columns.time} + toIntervalSecond({keep_s}) DELETE"
            f" WHERE {columns.tenant} = {quote(tenant)}"
            for tenant, keep_s in sorted(self.keep_s_of_tenant.items())
        ]
        if self.keep_s is not None:
            general = f"{columns.time} + toIntervalSecond({self.keep_s}) DELETE"
            if self.keep_s_of_tenant:
                names = ", ".join(quote(tenant) for tenant in sorted(self.keep_s_of_tenant))
                general += f" WHERE {columns.tenant} NOT IN ({names})"
            parts.append(general)
        return ", ".join(parts)


def read_retention(text: str) -> dict[str, Retention]:
    """Parse a setting such as `spans=30d, acme/requests=7d` into a retention per table.

    Raises:
        ConfigurationError: If a rule is invalid or duplicated.
    """
    general: dict[str, int] = {}
    of_tenant: dict[str, dict[str, int]] = {}
    for rule in filter(None, (part.strip() for part in text.split(","))):
        match = _RULE.fullmatch(rule)
        if match is None or match["table"] not in TABLES:
            raise ConfigurationError(
                f"collector.retention: {rule!r} is not TABLE=TIME or TENANT/TABLE=TIME; "
                f"tables: {', '.join(TABLES)}"
            )
        keep_s = int(parse_duration_s(match["keep"]))
        if not MIN_KEEP_S <= keep_s <= MAX_KEEP_S:
            raise ConfigurationError(
                f"collector.retention: {rule!r} is not between 1h and 7300d; "
                "leave a rule out to keep rows forever"
            )
        table, tenant = match["table"], match["tenant"]
        if tenant is not None and TABLES[table].tenant is None:
            raise ConfigurationError(
                f"collector.retention: {rule!r}: rows of {table} have no tenant; "
                f"write {table}={match['keep']}"
            )
        known = general if tenant is None else of_tenant.setdefault(table, {})
        key = table if tenant is None else tenant.strip()
        if key in known:
            raise ConfigurationError(f"collector.retention: {rule!r} duplicates an earlier rule")
        known[key] = keep_s
    return {table: Retention(general.get(table), of_tenant.get(table, {})) for table in TABLES}


def apply_retention(
    client: Client, retention: Mapping[str, Retention], cluster: str | None = None
) -> list[str]:
    """Set each table's TTL if it differs; return the changed tables.

    Existing rows are checked in the background; expired ones are removed by the next merges.

    Raises:
        StoreError: If the disk has no room for a change.
    """
    rows = client.query(
        "SELECT name, comment FROM system.tables WHERE database = currentDatabase()"
    )
    comments = dict(rows.result_rows)
    changed = []
    for name, rule in retention.items():
        table = f"{name}{LOCAL_SUFFIX}" if cluster else name
        where = f"{table} ON CLUSTER '{cluster}'" if cluster else table
        ttl = rule.ttl(name)
        wanted = f"{COMMENT_PREFIX}{ttl}" if ttl else ""
        if comments.get(table, "") == wanted:
            continue
        change = f"MODIFY TTL {ttl}" if ttl else "REMOVE TTL"
        try:
            check_room_to_change(client)
            client.command(f"ALTER TABLE {where} {change}")
            client.command(f"ALTER TABLE {where} MODIFY COMMENT {quote(wanted)}")
        except OSError as error:
            raise StoreError(f"cannot set collector.retention: {first_line(error)}") from error
        logger.info("retention changed table=%s ttl=%s", table, ttl or "none")
        changed.append(table)
    return changed
