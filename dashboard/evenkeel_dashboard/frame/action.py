"""Runs actions through the collector: checks permission, names the actor, shows the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import streamlit as st

from evenkeel_dashboard.draw import markup
from evenkeel_dashboard.frame.collector_api import CollectorError, act
from evenkeel_dashboard.frame.page import redraw_page
from evenkeel_dashboard.frame.signing_in import identity, settings, still_signed_in

_AUTHOR = "author"
# Why the last action was not run, by the key of its button.
_REFUSED = "action-refused"
# What the last action did, until it has been said.
_DONE = "action-done"

Order = Mapping[str, Any]


class OrderError(Exception):
    """What was filled in makes no order; says what to write instead."""


def may_act() -> bool:
    """Return whether the current user may change anything."""
    return identity().may_act


def author_field(key: str) -> None:
    """Draw a field for the name to record for an action, unless the user has signed in with one."""
    if identity().name:
        return
    name = st.text_input(
        "your name, for the audit log",
        value=st.session_state.get(_AUTHOR, ""),
        key=f"{key}-by",
        max_chars=100,
        width=220,
    )
    st.session_state[_AUTHOR] = name


def action_button(
    label: str,
    key: str,
    name: str,
    read_order: Callable[[], tuple[Order, str]],
    author_key: str,
    *,
    is_primary: bool = False,
    disabled: bool = False,
    cleared: Mapping[str, str | None] | None = None,
) -> None:
    """Draw a form's button that runs an action at the collector, and why its last click did not.

    A click runs the action before anything is drawn anew: none is lost if the page cannot be read
    then, no longer has the form, or is drawn again for another reason.

    Args:
        label: The button's text.
        key: The button's key, another for each subject of an action.
        name: The action.
        read_order: Returns what is filled in, read from the session's state, and what to say once
            that is done. Raises OrderError if it is not complete.
        author_key: The key of the form's `author_field`.
        is_primary: Whether it stands out.
        disabled: Whether it cannot be clicked.
        cleared: What some fields, by their keys, have once that is done.
    """
    kind: Literal["primary", "secondary"] = "primary" if is_primary else "secondary"
    st.form_submit_button(
        label,
        key=key,
        type=kind,
        disabled=disabled,
        on_click=_run,
        args=(key, name, read_order, author_key, cleared),
    )


def show_refusal(*keys: str) -> None:
    """Draw why the last click on one of some buttons ran no action, if so."""
    refused: dict[str, str] = st.session_state.get(_REFUSED, {})
    for key in keys:
        if key in refused:
            # It may name alerts, and those that are grouped have names from anybody's spans.
            st.error(markup.plain(refused[key]))


def show_done() -> None:
    """Say what the last action did, once; by the app, because a part of a page may be gone."""
    if done := st.session_state.pop(_DONE, ""):
        st.toast(markup.plain(done), duration="long")


def _run(
    key: str,
    name: str,
    read_order: Callable[[], tuple[Order, str]],
    author_key: str,
    cleared: Mapping[str, str | None] | None,
) -> None:
    st.session_state[_REFUSED] = {}
    # Access may have ended since the button was drawn: the page then says so when it is drawn.
    if not still_signed_in() or not may_act():
        return
    author = identity().name or str(st.session_state.get(f"{author_key}-by", "")).strip()
    try:
        order, done = read_order()
        if not author:
            raise OrderError("Enter your name: actions are recorded in the audit log.")
        act(settings().collector_url, name, identity().token, {**order, "by": author})
    except (OrderError, CollectorError) as error:
        st.session_state[_REFUSED] = {key: str(error)}
        return
    for field, value in (cleared or {}).items():
        st.session_state[field] = value
    st.session_state[_DONE] = done
    redraw_page()
