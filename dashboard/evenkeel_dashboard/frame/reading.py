"""Reads the store for the pages: one connection a token, and answers kept for seconds.

Sessions that look at the same view with the same token share the answers, so that eight of them
cost what one does: live ranges end at the same moments for all (`Selection.window`), and answers
are kept as long as a live page waits. A token is part of what answers are kept by: nobody is given
what was read with another's. What a page reads of its range it asks for at once (`rows_later`), and
waits for it where it draws it; when it is drawn anew, what it had asked for before and what had not
begun is dropped (`leave`).
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

# The queries of the frame itself and of several pages; those of one page are in its folder.
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
# Hashable, so that answers can be kept by them: lists are tuples here.
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
        StoreError: If the store is gone or refuses the query.
    """
    return _kept_rows(_source(), query, tuple(sorted(parameters.items())))


def rows_later(query: Path, parameters: Parameters) -> Rows:
    """Begin to read a query of a range; what is returned waits for its rows.

    The rows are at most as old as a live page: nothing that a person changes is read so.
    """
    return _begin(_shared_rows, query, parameters)


def frame_later(query: Path, parameters: Parameters) -> Callable[[], pd.DataFrame]:
    """Begin to read a query of a range; what is returned waits for its frame, as `rows_later`."""
    return _begin(_shared_frame, query, parameters)


def minute_rows_later(query: Path, parameters: Parameters) -> Rows:
    """Begin to read a query of a range that ends with a minute; its rows are kept for 30 s."""
    return _begin(_minute_rows, query, parameters)


def leave() -> None:
    """Drop what this session has begun to read and what has not had its turn: it is drawn anew."""
    if context := get_script_run_ctx():
        _pool().leave(context.session_id)


def slow_rows_later(query: Path, parameters: Parameters) -> Rows:
    """Begin to read a query about the past, kept for minutes: what it reads is over."""
    return _begin(_long_kept_rows, query, parameters)


def frame(query: Path, parameters: Parameters) -> pd.DataFrame:
    """Return the frame of a query, to be left unchanged.

    Raises:
        StoreError: If the store is gone or refuses the query.
    """
    return _kept_frame(_source(), query, tuple(sorted(parameters.items())))


def frame_reader(query: Path, parameters: Parameters) -> Callable[[], pd.DataFrame]:
    """Return what reads a frame later, as who looks now: a download asks outside of the page."""
    source, sent = _source(), tuple(sorted(parameters.items()))
    return lambda: _read_frame(source, query, sent)


def free_frame(sql: str) -> pd.DataFrame:
    """Return the frame of somebody's own SQL: read only, of so many rows, in so much time.

    Raises:
        StoreError: If the store is gone or refuses the query.
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
    """Return parameters as the client takes them: a tuple would be a tuple in SQL."""
    return {name: _as_lists(value) for name, value in parameters}


def _as_lists(value: Any) -> Any:
    return [_as_lists(each) for each in value] if isinstance(value, tuple) else value


def _begin(
    read: Callable[[_Source, Path, Sorted], _T], query: Path, parameters: Parameters
) -> Callable[[], _T]:
    source, sent, context = _source(), tuple(sorted(parameters.items())), get_script_run_ctx()

    def run() -> _T:
        # Streamlit asks a thread whose session it works for, and one of the pool serves them all.
        add_script_run_ctx(threading.current_thread(), context)
        return read(source, query, sent)

    def is_open() -> bool:
        # Without a server, as in a test of a page, there is nobody who could leave.
        if context is None or not runtime.exists():
            return True
        return bool(runtime.get_instance().is_active_session(context.session_id))

    return _pool().begin(context.session_id if context else "", is_open, run)


def _start_pool() -> ReadingPool:
    return ReadingPool(_AT_ONCE, _AT_MOST)


_pool: Callable[[], ReadingPool] = st.cache_resource(show_spinner=False)(_start_pool)


# Streamlit keeps answers by a function's name, and forgets them all where the same name comes with
# another lifetime: hence a function for each.
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
