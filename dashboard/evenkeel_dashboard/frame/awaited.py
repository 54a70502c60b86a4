"""What a page cannot be drawn without: it is looked for again until it is there."""

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
    """Return what is read; where that is nothing, say so or why, and draw the page once it is.

    `every_s` is how often to look again; None looks once.
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
