"""Waits for data that a page cannot be drawn without."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import streamlit as st

from evenkeel.errors import StoreError
from evenkeel_dashboard.frame.page import refreshing

_T = TypeVar("_T")


def awaited(
    read: Callable[[], list[_T]], say_nothing: Callable[[], None], every_s: int | None
) -> list[_T]:
    """Return the data; while there is none, show why and rerun the page once it arrives.

    `every_s` is how often to check again; None checks once.
    """
    with contextlib.suppress(StoreError):
        if found := read():
            return found

    def look_again() -> None:
        if read():
            st.rerun(scope="app")
        say_nothing()

    refreshing(look_again, every_s)
    return []
