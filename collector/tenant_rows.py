"""Which rows of each table are a tenant's: the filters that its queries run under.

The engine applies a filter wherever a query reads its table, however the query names it: in
subqueries, joins, views and scalar expressions. A table that is not known here is empty for a
tenant, and so is what the engine says of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from collector.retention import TABLES
from collector.rollup_judgement import quote
from evenkeel.store import DATABASE

NOTHING = "0"
# A table's tenant, where retention does not say it already.
TENANT_OF: Mapping[str, str] = {
    **{name: table.tenant for name, table in TABLES.items()},
    "slo_status": "selector['tenant']",
    "alert_history": "labels['tenant']",
}
# Objectives are of everybody, unless they select a tenant.
OBJECTIVE_OF = "JSONExtractString(definition, 'select', 'tenant')"
# What the engine says of itself, and clients ask for.
OPEN_SYSTEM_TABLES = frozenset({
    "collations", "data_type_families", "formats", "functions", "numbers", "numbers_mt", "one",
    "settings", "time_zones", "zeros", "zeros_mt",
})  # fmt: skip
# Settings under which nothing of a query is evaluated before the filter: an error in it would tell
# whether another tenant has such a row.
ORDER_SETTINGS: Mapping[str, str] = {
    "optimize_move_to_prewhere": "0",
    "query_plan_optimize_prewhere": "0",
    "query_plan_merge_filters": "0",
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the engine; views are none, they read tables."""

    database: str
    name: str


def filters_for(tenant: str, tables: Iterable[Table]) -> dict[str, str]:
    """Return a condition for each table; other tenants' rows do not meet it."""
    return {f"{each.database}.{each.name}": _filter(tenant, each) for each in tables
            if not (each.database == "system" and each.name in OPEN_SYSTEM_TABLES)}  # fmt: skip


def _filter(tenant: str, table: Table) -> str:
    if table.database != DATABASE:
        return NOTHING
    if table.name == "slo_objectives":
        return f"{OBJECTIVE_OF} IN ('', {quote(tenant)})"
    expression = TENANT_OF.get(table.name)
    return NOTHING if expression is None else f"{expression} = {quote(tenant)}"


def settings_for(tenant: str, tables: Iterable[Table]) -> dict[str, str]:
    """Return the settings of a tenant's session, each as the store writes its value."""
    pairs = ", ".join(
        f"{quote(table)}: {quote(condition)}"
        for table, condition in filters_for(tenant, tables).items()
    )
    return {**ORDER_SETTINGS, "additional_table_filters": f"{{{pairs}}}"}
