"""Waits for data that a page cannot be drawn without."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import streamlit as st

from evenkeel.errors import StoreError
from evenkeel_dashboard.frame.page import refreshing

MOST_CHECKS = 60
_CHECKS = "checks_for"

_T = TypeVar("_T")


def awaited(
    read: Callable[[], list[_T]],
    say_nothing: Callable[[], None],
    every_s: int | None,
    name: str,
) -> list[_T]:
    """Return the data; while there is none, show why and rerun the page once it arrives.

    What has not come after `MOST_CHECKS` checks may never come: then the page stops checking, and
    says so.

    Args:
        read: Reads the data.
        say_nothing: Draws why there is none.
        every_s: How often to check again; None checks once.
        name: Names what is awaited, so that each page counts its own checks.
    """
    checks: dict[str, int] = st.session_state.setdefault(_CHECKS, {})
    with contextlib.suppress(StoreError):
        if found := read():
            checks.pop(name, None)
            return found
    is_over = checks.get(name, 0) >= MOST_CHECKS

    def look_again() -> None:
        if read():
            st.rerun(scope="app")
        checks[name] = checks.get(name, 0) + 1
        if not is_over and checks[name] == MOST_CHECKS:
            st.rerun(scope="app")
        say_nothing()
        if is_over:
            st.caption("This page has stopped checking for it. Reload the page to check again.")

    refreshing(look_again, None if is_over else every_s)
    return []
