"""Row filters that restrict a tenant's queries to its own rows.

The engine applies a filter wherever a query reads its table, however the query names it: in
subqueries, joins, views and scalar expressions. Tables unknown to this module are empty for a
tenant, and so are most system tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evenkeel.store import DATABASE
from evenkeel_collector.store.retention import TABLES
from evenkeel_collector.store.sql import quote

NOTHING = "0"
# A table's tenant expression, if retention does not define it.
TENANT_OF: Mapping[str, str] = {
    **{name: table.tenant for name, table in TABLES.items() if table.tenant is not None},
    "slo_status": "selector['tenant']",
    "alert_history": "labels['tenant']",
}
# Objectives are visible to every tenant unless they select tenants.
OBJECTIVE_OF = "JSONExtractString(definition, 'select', 'tenant')"
NAMES_TENANTS = (
    "arrayExists(each -> each[1] = 'tenant', "
    "JSONExtract(definition, 'filters', 'Array(Array(String))'))"
)
# System tables that clients need.
OPEN_SYSTEM_TABLES = frozenset({
    "collations", "data_type_families", "formats", "functions", "numbers", "numbers_mt", "one",
    "settings", "time_zones", "zeros", "zeros_mt",
})  # fmt: skip
# With these settings no result depends on other tenants' rows.
TENANT_SETTINGS: Mapping[str, str] = {
    # Evaluate nothing before the filter: an error would reveal whether another tenant has such a
    # row.
    "optimize_move_to_prewhere": "0",
    "query_plan_optimize_prewhere": "0",
    "query_plan_merge_filters": "0",
    "optimize_use_projections": "0",
    "enable_join_runtime_filters": "0",
    "query_plan_optimize_lazy_materialization": "0",
    # This cache of conditions without matches is shared between tenants.
    "use_query_condition_cache": "0",
    # Numbers of rows and bytes read.
    "output_format_write_statistics": "0",
}
# Do not evaluate functions on index bounds, which cover all tenants' rows.
WITHOUT_INDEXES: Mapping[str, str] = {
    "use_primary_key": "0",
    "use_partition_pruning": "0",
    "use_skip_indexes": "0",
    "use_statistics": "0",
}
# Formats that report the number of rows before LIMIT. By default the engine counts the rows of the
# blocks it happened to read, which are shorter if other tenants' rows lie between.
COUNTING_FORMATS = frozenset({
    "json", "jsoncolumnswithmetadata", "jsoncompact", "jsoncompactstrings", "jsonstrings", "xml",
})  # fmt: skip
EXACT_COUNT = {"exact_rows_before_limit": "1"}
# Limit errors say how far the query got; a tenant only learns which limit it hit.
_LIMITS = {
    158: "too many rows", 159: "it took too long", 160: "it would take too long",
    241: "it needs too much memory", 307: "too many bytes", 394: "it was cancelled",
    396: "the result is too large",
}  # fmt: skip
# The function that failed, and the name of its error's code.
_FUNCTION = re.compile(r"while executing 'FUNCTION (\w+)\(")
_NAME = re.compile(r"\(([A-Z][A-Z0-9_]+)\)(?: \(version [^()]*\))?\s*$")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the engine; views do not count, they read tables."""

    database: str
    name: str


def filters_for(tenant: str, tables: Iterable[Table]) -> dict[str, str]:
    """Return a condition per table that no other tenant's row meets."""
    return {f"{each.database}.{each.name}": _filter(tenant, each) for each in tables
            if not (each.database == "system" and each.name in OPEN_SYSTEM_TABLES)}  # fmt: skip


def _filter(tenant: str, table: Table) -> str:
    if table.database != DATABASE:
        return NOTHING
    if table.name == "slo_objectives":
        return f"{OBJECTIVE_OF} IN ('', {quote(tenant)}) AND NOT {NAMES_TENANTS}"
    if table.name == "prices":
        # Its costs' currency, but not what they are made of.
        return "kind = ''"
    expression = TENANT_OF.get(table.name)
    return NOTHING if expression is None else f"{expression} = {quote(tenant)}"


def no_rows(tables: Iterable[Table]) -> dict[str, str]:
    """Return conditions that no row meets."""
    return dict.fromkeys(filters_for("", tables), NOTHING)


def settings_for(filters: Mapping[str, str], format_: str) -> dict[str, str]:
    """Return the settings of a tenant's session, values as the store writes them."""
    pairs = ", ".join(f"{quote(table)}: {quote(filters[table])}" for table in filters)
    exact = EXACT_COUNT if format_.lower() in COUNTING_FORMATS else {}
    return {**TENANT_SETTINGS, **exact, "additional_table_filters": f"{{{pairs}}}"}


def is_limit(code: int) -> bool:
    """Whether this error code means that the query exceeded a limit or was cancelled."""
    return code in _LIMITS


def error_for(code: int, text: str) -> str:
    """Return the error message that a tenant may see: it contains no data values."""
    if code in _LIMITS:
        return f"Code: {code}. DB::Exception: the query was stopped: {_LIMITS[code]}."
    function = _FUNCTION.search(text)
    name = _NAME.search(text)
    what = f"{function[1]} failed on a value" if function else "the query failed on its rows"
    return f"Code: {code}. DB::Exception: {what}. ({name[1] if name else 'UNKNOWN_EXCEPTION'})"
