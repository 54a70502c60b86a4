"""Runs actions through the collector: checks permission, names the actor, shows the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from evenkeel_dashboard.draw import markup
from evenkeel_dashboard.frame.collector_api import CollectorError, act
from evenkeel_dashboard.frame.signing_in import identity, settings

_AUTHOR = "author"


def may_act() -> bool:
    """Return whether the current user may change anything."""
    return identity().may_act


def author_field(key: str) -> str:
    """Return the name to record for actions: the signed-in user's, or the one they typed."""
    who = identity().name
    if who:
        return who
    name = st.text_input(
        "your name, for the audit log",
        value=st.session_state.get(_AUTHOR, ""),
        key=f"{key}-by",
        max_chars=100,
        width=220,
    )
    st.session_state[_AUTHOR] = name
    return str(name).strip()


def perform(name: str, order: Mapping[str, Any], author: str, done: str) -> bool:
    """Send an action to the collector, show the result, and return whether it succeeded."""
    if not author:
        st.error("Enter your name: actions are recorded in the audit log.")
        return False
    try:
        act(settings().collector_url, name, identity().token, {**order, "by": author})
    except CollectorError as error:
        # It may name alerts, and those that are grouped have names from anybody's spans.
        st.error(markup.plain(str(error)))
        return False
    st.toast(done)
    return True
