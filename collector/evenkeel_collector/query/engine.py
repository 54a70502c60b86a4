"""Runs read-only queries on the embedded store, bounded in time, memory and rows.

Each query runs in its own session, created in the thread that runs it, locked with `readonly = 1`
once its settings are applied, and closed afterwards: queries share no session state.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import chdb

from evenkeel.store import DATABASE
from evenkeel_collector.query.guard import (
    READONLY_CODE,
    Guard,
    QueryRefusedError,
    identifier_parameters,
    is_settings_list,
    parameters_of,
    result_format,
)
from evenkeel_collector.query.names import CLIENT_SETTINGS, LIMITED
from evenkeel_collector.query.tenant_row_filters import (
    WITHOUT_INDEXES,
    Table,
    error_for,
    filters_for,
    is_limit,
    no_rows,
    settings_for,
)
from evenkeel_collector.query.tenant_views import (
    create_tenant_views,
    for_tenant_views,
    name_for_tenant_views,
    without_tenant_views,
)
from evenkeel_collector.store.sql import quote, quote_name
from evenkeel_collector.store.storage import TENANT_DATABASE

DEFAULT_FORMAT = "TabSeparated"
MAX_QUERY_BYTES = 1 << 20
# Longer queries are not cached, which bounds the memory that hostile queries can use.
MAX_CACHED_BYTES = 32 << 10
NUM_CACHED_STATEMENTS = 512

_TABLES = "SELECT database, name FROM system.tables WHERE engine != 'View'"
_FINAL = re.compile(r"\bFINAL\b")
_ERROR_CODE = re.compile(r"Code: (\d+)\.")


class QueryError(Exception):
    """A query failed; `code` and the message come from the engine."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits per query, and how many run at once; clients may lower them, not raise them."""

    num_threads: int = 4
    timeout_s: float = 30.0
    memory_bytes: int = 2 << 30
    result_rows: int = 1_000_000
    result_bytes: int = 512 << 20


@dataclass(frozen=True, slots=True)
class Query:
    """One query as the client sent it; parameter values are in ClickHouse's escaped text form."""

    sql: str
    database: str
    settings: Mapping[str, str]
    parameters: Mapping[str, str]
    default_format: str = DEFAULT_FORMAT
    # The tenant whose rows it may see; None: all rows.
    tenant: str | None = None
    # A unique name by which the running query is found to cancel it.
    tag: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a query: bytes in `format`."""

    data: bytes
    format: str
    rows_read: int
    bytes_read: int
    elapsed_s: float


class QueryEngine:
    """The read-only side of the embedded store.

    Args:
        path: chDB's folder; this process already has it open.
        limits: Limits per query.
    """

    def __init__(self, path: Path, limits: QueryLimits) -> None:
        self._path = str(path)
        self._limits = limits
        self._pool = ThreadPoolExecutor(limits.num_threads, thread_name_prefix="query")
        session = self._connect()
        try:
            self.version = _text(session, "SELECT version()")
            self.timezone = _text(session, "SELECT timezone()")
            table_functions = _text(session, "SELECT name FROM system.table_functions").split("\n")
            settings = _text(session, "SELECT name FROM system.settings").split("\n")
            tables = _text(session, _TABLES).split("\n")
            self._tables = [Table(*line.split("\t")) for line in tables]
            virtual_columns = _virtual_columns(session, self._tables)
            self._tenant_views = create_tenant_views(session)
        finally:
            session.close()
        self._guard = Guard.of_engine(table_functions)
        self._tenant_guard = self._guard.for_tenant(virtual_columns)
        self._client_settings = CLIENT_SETTINGS.keys() & set(settings)
        self._check_cached = lru_cache(NUM_CACHED_STATEMENTS)(self._check_uncached)

    @property
    def pool(self) -> ThreadPoolExecutor:
        """The threads to call `run` in, so that queries are bounded and do not block ingest."""
        return self._pool

    def run(self, query: Query) -> Result:
        """Run one query.

        Raises:
            QueryError: If it is refused, invalid, or over a limit.
        """
        if len(query.sql) > MAX_QUERY_BYTES:
            raise QueryError(62, _message(62, f"query is longer than {MAX_QUERY_BYTES} bytes"))
        _refuse_broken_text(query)
        settings = self._settings(query)
        try:
            guard = self._guard if query.tenant is None else self._tenant_guard
            guard.check_format(query.default_format)
            formatted = self._check(query.sql, guard)
            parameters = parameters_of(formatted, query.parameters)
            guard.check_identifiers(formatted, parameters)
            return self._run_checked(query, formatted, settings, parameters)
        except QueryRefusedError as error:
            raise QueryError(READONLY_CODE, _message(READONLY_CODE, str(error))) from error
        except RuntimeError as error:
            raise self._query_error(error) from error

    def _run_checked(
        self, query: Query, formatted: str, settings: str, parameters: Mapping[str, str]
    ) -> Result:
        if query.tenant is not None:
            return self._run_for_tenant(query, query.tenant, formatted, settings, parameters)
        with self._session(query.tag, query.database, settings) as session:
            sql = self._with_honest_settings(formatted)
            result = session.query(sql, query.default_format, params=dict(parameters))
            return Result(
                result.bytes() or b"",
                result_format(formatted, query.default_format),
                int(result.rows_read()),
                int(result.bytes_read()),
                float(result.elapsed()),
            )

    def _run_for_tenant(
        self, query: Query, tenant: str, formatted: str, settings: str, given: Mapping[str, str]
    ) -> Result:
        """Run a query on the tenant's views and rows.

        Whether index analysis fails depends on other tenants' rows. So a query that failed is run
        again without indexes, and the second result counts. Its error is reported in full only if
        an empty store raises the same error.
        """
        format_ = result_format(formatted, query.default_format)
        sql = self._with_honest_settings(for_tenant_views(formatted, self._tenant_views))
        identifiers = identifier_parameters(formatted)
        parameters = {name: name_for_tenant_views(value) if name in identifiers else value
                      for name, value in given.items()}  # fmt: skip
        database = TENANT_DATABASE if query.database == DATABASE else query.database
        if _FINAL.search(formatted):
            # By default it does not apply to the table behind a view.
            settings += ", final = 1"

        def ask(filters: Mapping[str, str], more: Mapping[str, str]) -> Result:
            kept = {**settings_for(filters, format_), **more}
            listed = "".join(f", {name} = {value}" for name, value in kept.items())
            try:
                with self._session(query.tag, database, settings + listed) as session:
                    result = session.query(sql, query.default_format, params=parameters)
                    # The amount read would reveal other tenants' rows.
                    return Result(result.bytes() or b"", format_, 0, 0, float(result.elapsed()))
            except RuntimeError as error:
                raise self._query_error(error) from error

        own, none = filters_for(tenant, self._tables), no_rows(self._tables)
        try:
            return ask(own, {})
        except QueryError as error:
            failure = error
        if not is_limit(failure.code):
            try:
                return ask(own, WITHOUT_INDEXES)
            except QueryError as error:
                failure = error
        if not is_limit(failure.code):
            try:
                ask(none, WITHOUT_INDEXES)
            except QueryError as error:
                if error.code == failure.code:
                    raise QueryError(error.code, without_tenant_views(str(error))) from None
        text = f"{error_for(failure.code, str(failure))} (version {self.version})"
        raise QueryError(failure.code, text) from None

    def cancel(self, query: Query) -> None:
        """Cancel a query that runs in another thread; do nothing if it is not running."""
        session = self._connect()
        try:
            session.query(
                f"KILL QUERY WHERE Settings['log_comment'] = {quote(query.tag)} ASYNC",
                DEFAULT_FORMAT,
            )
        finally:
            session.close()

    def close(self) -> None:
        """Wait for running queries to end; their time limit bounds how long that takes."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _connect(self) -> Any:
        return chdb.connect(self._path)

    @contextmanager
    def _session(self, tag: str, database: str, settings: str) -> Iterator[Any]:
        """Yield a locked session with these settings."""
        session = self._connect()
        try:
            if database:
                session.query(f"USE {quote_name(database)}", DEFAULT_FORMAT)
            listed = f"{settings}, log_comment = {quote(tag)}, readonly = 1"
            session.query(f"SET {listed}", DEFAULT_FORMAT)
            yield session
        finally:
            session.close()

    def _check(self, sql: str, guard: Guard) -> str:
        is_short = len(sql) <= MAX_CACHED_BYTES
        return self._check_cached(sql, guard) if is_short else self._check_uncached(sql, guard)

    def _check_uncached(self, sql: str, guard: Guard) -> str:
        session = self._connect()
        try:
            session.query("SET readonly = 1", DEFAULT_FORMAT)
            formatted = session.query(
                "SELECT formatQuerySingleLine({sql:String})",
                "RawBLOB",
                params={"sql": _escape(sql)},
            ).bytes()
        finally:
            session.close()
        text = bytes(formatted).decode("utf-8", errors="surrogateescape")
        guard.check(text)
        return text

    def _settings(self, query: Query) -> str:
        """Return the SET list: our limits, lowered on the client's request, then its settings.

        Raises:
            QueryError: If a setting or its value is not allowed.
        """
        limits = self._limits
        bounds: dict[str, float] = {
            "max_execution_time": limits.timeout_s,
            "max_memory_usage": limits.memory_bytes,
            "max_result_rows": limits.result_rows,
            "max_result_bytes": limits.result_bytes,
            "max_threads": os.cpu_count() or 1,
        }
        others: dict[str, str] = {"allow_python_table_function": "0"}
        for name, value in query.settings.items():
            if name in bounds:
                bounds[name] = _narrow(name, value, bounds[name])
            elif name not in self._client_settings:
                raise QueryError(
                    READONLY_CODE,
                    _message(
                        READONLY_CODE, f"Cannot modify {name[:80]!r} setting in readonly mode"
                    ),
                )
            elif not CLIENT_SETTINGS[name].fullmatch(value):
                raise QueryError(36, _message(36, f"{name}: {value[:40]!r} is not allowed here"))
            else:
                others[name] = value
        if query.tenant is not None:
            # The smallest memory limit that suffices would reveal how much was read.
            bounds["max_memory_usage"] = limits.memory_bytes
            # So would the size of a result: states of aggregate functions share memory.
            bounds["max_result_bytes"] = limits.result_bytes
        parts = [f"{name} = {_plain(value)}" for name, value in bounds.items()]
        parts += [f"{name} = {quote(value)}" for name, value in others.items()]
        return ", ".join(parts)

    def _with_honest_settings(self, formatted: str) -> str:
        """Show clients which settings they may change; a locked session would report none."""
        if not is_settings_list(formatted):
            return formatted
        names = ", ".join(quote(name) for name in sorted({*self._client_settings, *LIMITED}))
        readonly = f"toUInt8(name NOT IN ({names})) AS readonly"
        return formatted.replace("readonly", readonly, 1)

    def _query_error(self, error: RuntimeError) -> QueryError:
        text = str(error).strip()
        text = text[max(text.find("Code: "), 0) :]
        match = _ERROR_CODE.match(text)
        version = f" (version {self.version})"
        return QueryError(
            int(match[1]) if match else 1002, text if version in text else text + version
        )


def _refuse_broken_text(query: Query) -> None:
    """Check that everything a client sent is UTF-8; the engine accepts nothing else.

    Raises:
        QueryError: If any of it is not UTF-8.
    """
    parts = [query.sql, query.database, query.default_format]
    for mapping in (query.settings, query.parameters):
        parts += [*mapping, *mapping.values()]
    try:
        "".join(parts).encode()
    except UnicodeEncodeError as error:
        text = "the query, its parameters or its settings are not valid UTF-8"
        raise QueryError(62, _message(62, text)) from error


def _message(code: int, text: str) -> str:
    name = {READONLY_CODE: "READONLY", 62: "SYNTAX_ERROR"}.get(code, "BAD_ARGUMENTS")
    return f"Code: {code}. DB::Exception: {text}. ({name})"


def _narrow(name: str, value: str, bound: float) -> float:
    try:
        number = float(value)
    except ValueError:
        raise QueryError(36, _message(36, f"{name} is {value[:40]!r}, expected a number")) from None
    return number if 0 < number < bound else bound


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escape(text: str) -> str:
    """Return a parameter's value as the engine expects it: escaped as in TabSeparated."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def _virtual_columns(session: Any, tables: Iterable[Table]) -> set[str]:
    """Return the virtual columns that the engine adds to our tables."""
    session.query("SET describe_include_virtual_columns = 1", DEFAULT_FORMAT)
    found = set()
    for table in tables:
        if table.database == DATABASE:
            lines = _text(session, f"DESCRIBE TABLE {DATABASE}.{quote_name(table.name)}")
            rows = (line.split("\t") for line in lines.split("\n"))
            found |= {row[0] for row in rows if row[-1] == "1"}
    return found


def _text(session: Any, sql: str) -> str:
    return bytes(session.query(sql, DEFAULT_FORMAT).bytes()).decode().strip()
