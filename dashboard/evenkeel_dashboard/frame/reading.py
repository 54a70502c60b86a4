"""Queries the store for the pages: one connection per token, results cached for seconds.

Sessions that show the same view with the same token share the results, so that eight of them cost
as much as one: live ranges end at the same moments for all (`Selection.window`), and results are
cached for one refresh interval. The token is part of the cache key, so no user gets results read
with another token. Which tenant's rows a token may read, the collector's query port decides
(tenant_row_filters.py). A page starts all queries of its range at once (`rows_later`) and waits for
each where it draws it. On a rerun, the page's queries that have not started are dropped (`leave`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import add_script_run_ctx, get_script_run_ctx

from evenkeel.store import Store
from evenkeel_dashboard.frame.reading_pool import ReadingPool
from evenkeel_dashboard.frame.signing_in import identity, settings

if TYPE_CHECKING:
    import pandas as pd

# Queries of the frame and of several pages; a query used by one page is in that page's folder.
SHARED = Path(__file__).parent / "queries"
QUERY_TIMEOUT_S = 30.0
FREE_TIMEOUT_S = 10.0
FREE_ROWS = 10_000
_KEPT_S = 2.0
_SHARED_S = 5.0
_MINUTE_S = 30.0
_LONG_S = 300.0
_AT_ONCE = 8
_AT_MOST = 64
_MAX_KEPT = 500

_T = TypeVar("_T")
# Hashable, because they are part of the cache key: lists become tuples.
Value = str | int | float | tuple[Any, ...]
Parameters = Mapping[str, Value]
Rows = Callable[[], list[dict[str, Any]]]
Sorted = tuple[tuple[str, Value], ...]
_Source = tuple[str, str | None]
_Rows = list[dict[str, Any]]
_Reads = Callable[[_Source, Path, Sorted], _T]


def rows(query: Path, parameters: Parameters) -> list[dict[str, Any]]:
    """Return the rows of a query.

    Raises:
        StoreError: If the store is unreachable or refuses the query.
    """
    return _kept_rows(_source(), query, tuple(sorted(parameters.items())))


def rows_later(query: Path, parameters: Parameters) -> Rows:
    """Start a query over a range; the returned function waits for its rows.

    Rows may be as old as one refresh interval, so do not use it for data that users change.
    """
    return _begin(_shared_rows, query, parameters)


def frame_later(query: Path, parameters: Parameters) -> Callable[[], pd.DataFrame]:
    """Start a query over a range; the returned function waits for its frame. See `rows_later`."""
    return _begin(_shared_frame, query, parameters)


def minute_rows_later(query: Path, parameters: Parameters) -> Rows:
    """Start a query over a range that ends at a full minute; its rows are cached for 30 s."""
    return _begin(_minute_rows, query, parameters)


def leave() -> None:
    """Drop this session's queries that have not started, because the page is being redrawn."""
    if context := get_script_run_ctx():
        _pool().leave(context.session_id)


def slow_rows_later(query: Path, parameters: Parameters) -> Rows:
    """Start a query about the past; its result no longer changes and is cached for minutes."""
    return _begin(_long_kept_rows, query, parameters)


def frame(query: Path, parameters: Parameters) -> pd.DataFrame:
    """Return the frame of a query; it is shared, so do not modify it.

    Raises:
        StoreError: If the store is unreachable or refuses the query.
    """
    return _kept_frame(_source(), query, tuple(sorted(parameters.items())))


def frame_reader(query: Path, parameters: Parameters) -> Callable[[], pd.DataFrame]:
    """Return a function that reads a frame later as the current user, for downloads."""
    source, sent = _source(), tuple(sorted(parameters.items()))
    return lambda: _read_frame(source, query, sent)


def free_frame(sql: str) -> pd.DataFrame:
    """Return the frame of a user's own SQL: read-only, with limits on rows and time.

    Raises:
        StoreError: If the store is unreachable or refuses the query.
    """
    return _store(_source()).free_frame(sql, FREE_ROWS, FREE_TIMEOUT_S)


def _source() -> _Source:
    return settings().query_url.get_secret_value(), identity().token


def _connect(source: _Source) -> Store:
    url, token = source
    return Store(url, timeout_s=QUERY_TIMEOUT_S, token=token)


_store: Callable[[_Source], Store] = st.cache_resource(show_spinner=False)(_connect)


def _read_rows(source: _Source, query: Path, parameters: Sorted) -> list[dict[str, Any]]:
    return _store(source).rows(query, _as_sent(parameters))


def _read_frame(source: _Source, query: Path, parameters: Sorted) -> pd.DataFrame:
    return _store(source).frame(query, _as_sent(parameters))


def _as_sent(parameters: Sorted) -> dict[str, object]:
    """Return parameters for the client, with tuples as lists: it would write an SQL tuple."""
    return {name: _as_lists(value) for name, value in parameters}


def _as_lists(value: Any) -> Any:
    return [_as_lists(each) for each in value] if isinstance(value, tuple) else value


def _begin(
    read: Callable[[_Source, Path, Sorted], _T], query: Path, parameters: Parameters
) -> Callable[[], _T]:
    source, sent, context = _source(), tuple(sorted(parameters.items())), get_script_run_ctx()

    def run() -> _T:
        # Streamlit looks up the session of the thread, but a pool thread serves all sessions.
        add_script_run_ctx(threading.current_thread(), context)
        return read(source, query, sent)

    def is_open() -> bool:
        # Without a server, as in a page test, no session can end.
        if context is None or not runtime.exists():
            return True
        return bool(runtime.get_instance().is_active_session(context.session_id))

    return _pool().begin(context.session_id if context else "", is_open, run)


def _start_pool() -> ReadingPool:
    return ReadingPool(_AT_ONCE, _AT_MOST)


_pool: Callable[[], ReadingPool] = st.cache_resource(show_spinner=False)(_start_pool)


# Streamlit caches by function name, and clears the cache if the same name has another lifetime:
# hence one function per lifetime.
def _read_kept_rows(source: _Source, query: Path, parameters: Sorted) -> _Rows:
    return _read_rows(source, query, parameters)


def _read_shared_rows(source: _Source, query: Path, parameters: Sorted) -> _Rows:
    return _read_rows(source, query, parameters)


def _read_minute_rows(source: _Source, query: Path, parameters: Sorted) -> _Rows:
    return _read_rows(source, query, parameters)


def _read_long_kept_rows(source: _Source, query: Path, parameters: Sorted) -> _Rows:
    return _read_rows(source, query, parameters)


def _read_shared_frame(source: _Source, query: Path, parameters: Sorted) -> pd.DataFrame:
    return _read_frame(source, query, parameters)


def _read_kept_frame(source: _Source, query: Path, parameters: Sorted) -> pd.DataFrame:
    return _read_frame(source, query, parameters)


def _keeps(ttl_s: float) -> Callable[[_Reads[_T]], _Reads[_T]]:
    kept: Callable[[_Reads[_T]], _Reads[_T]] = st.cache_data(
        ttl=ttl_s, max_entries=_MAX_KEPT, show_spinner=False, hash_funcs={type(SHARED): str}
    )
    return kept


_kept_rows: _Reads[_Rows] = _keeps(_KEPT_S)(_read_kept_rows)
_shared_rows: _Reads[_Rows] = _keeps(_SHARED_S)(_read_shared_rows)
_minute_rows: _Reads[_Rows] = _keeps(_MINUTE_S)(_read_minute_rows)
_long_kept_rows: _Reads[_Rows] = _keeps(_LONG_S)(_read_long_kept_rows)
_shared_frame: _Reads[pd.DataFrame] = _keeps(_SHARED_S)(_read_shared_frame)
_kept_frame: _Reads[pd.DataFrame] = _keeps(_KEPT_S)(_read_kept_frame)
