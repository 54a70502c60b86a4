"""Which rows of each table are a tenant's: the filters that its queries run under.

The engine applies a filter wherever a query reads its table, however the query names it: in
subqueries, joins, views and scalar expressions. A table that is not known here is empty for a
tenant, and so is what the engine says of itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evenkeel.store import DATABASE
from evenkeel_collector.store.retention import TABLES
from evenkeel_collector.store.sql import quote

NOTHING = "0"
# A table's tenant, where retention does not say it already.
TENANT_OF: Mapping[str, str] = {
    **{name: table.tenant for name, table in TABLES.items()},
    "slo_status": "selector['tenant']",
    "alert_history": "labels['tenant']",
}
# Objectives are of everybody, unless they select tenants.
OBJECTIVE_OF = "JSONExtractString(definition, 'select', 'tenant')"
NAMES_TENANTS = (
    "arrayExists(each -> each[1] = 'tenant', "
    "JSONExtract(definition, 'filters', 'Array(Array(String))'))"
)
# What the engine says of itself, and clients ask for.
OPEN_SYSTEM_TABLES = frozenset({
    "collations", "data_type_families", "formats", "functions", "numbers", "numbers_mt", "one",
    "settings", "time_zones", "zeros", "zeros_mt",
})  # fmt: skip
# Settings under which nothing that a tenant gets depends on others' rows.
TENANT_SETTINGS: Mapping[str, str] = {
    # Nothing of a query is evaluated before the filter: an error in it would tell whether another
    # tenant has such a row.
    "optimize_move_to_prewhere": "0",
    "query_plan_optimize_prewhere": "0",
    "query_plan_merge_filters": "0",
    "optimize_use_projections": "0",
    "enable_join_runtime_filters": "0",
    "query_plan_optimize_lazy_materialization": "0",
    # It remembers for everybody where no row met a condition.
    "use_query_condition_cache": "0",
    # How many rows and bytes were read.
    "output_format_write_statistics": "0",
}
# What functions do with the bounds that an index keeps of everybody's rows is not done.
WITHOUT_INDEXES: Mapping[str, str] = {
    "use_primary_key": "0",
    "use_partition_pruning": "0",
    "use_skip_indexes": "0",
    "use_statistics": "0",
}
# Formats that say how many rows there were before LIMIT. By itself the engine counts those of the
# blocks that it happened to read, which are shorter where others' rows lie between.
COUNTING_FORMATS = frozenset({
    "json", "jsoncolumnswithmetadata", "jsoncompact", "jsoncompactstrings", "jsonstrings", "xml",
})  # fmt: skip
EXACT_COUNT = {"exact_rows_before_limit": "1"}
# Errors about limits say how far the query had come; a tenant is only told which limit it was.
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
        return f"{OBJECTIVE_OF} IN ('', {quote(tenant)}) AND NOT {NAMES_TENANTS}"
    expression = TENANT_OF.get(table.name)
    return NOTHING if expression is None else f"{expression} = {quote(tenant)}"


def no_rows(tables: Iterable[Table]) -> dict[str, str]:
    """Return conditions that no row meets."""
    return dict.fromkeys(filters_for("", tables), NOTHING)


def settings_for(filters: Mapping[str, str], format_: str) -> dict[str, str]:
    """Return the settings of a tenant's session, each as the store writes its value."""
    pairs = ", ".join(f"{quote(table)}: {quote(filters[table])}" for table in filters)
    exact = EXACT_COUNT if format_.lower() in COUNTING_FORMATS else {}
    return {**TENANT_SETTINGS, **exact, "additional_table_filters": f"{{{pairs}}}"}


def is_limit(code: int) -> bool:
    """Whether an error of this code says that a query was ended for what it used."""
    return code in _LIMITS


def error_for(code: int, text: str) -> str:
    """Return what a tenant is told of an error that came about over data: no value of it."""
    if code in _LIMITS:
        return f"Code: {code}. DB::Exception: the query was ended: {_LIMITS[code]}."
    function = _FUNCTION.search(text)
    name = _NAME.search(text)
    what = f"{function[1]} failed on a value" if function else "the query failed over its rows"
    return f"Code: {code}. DB::Exception: {what}. ({name[1] if name else 'UNKNOWN_EXCEPTION'})"
