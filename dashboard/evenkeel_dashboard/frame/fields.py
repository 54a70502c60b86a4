"""Form fields that keep their value in the URL, so that a link shows the same view.

A value in the URL that is none of a field's options is said in the page's notice.
"""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from evenkeel_dashboard.draw import markup

_SLOT, _SAID = "notice_slot", "notices"


def notices_here() -> None:
    """Draw the page's notices here: what in its URL does not apply."""
    st.session_state[_SLOT], st.session_state[_SAID] = st.empty(), []


def add_notice(problem: str) -> None:
    """Add a sentence to the page's notices, once; the first one is drawn here if need be."""
    if _SAID not in st.session_state:
        notices_here()
    said = st.session_state[_SAID]
    if problem and problem not in said:
        said.append(problem)
        st.session_state[_SLOT].html(markup.notice(" ".join(said)))


def pick(name: str, label: str, options: Mapping[str, str], width: int = 170) -> str:
    """Draw a drop-down list, and return the choice; the first option is the default."""
    default = next(iter(options))
    wanted = st.query_params.get(name, default)

    def choose() -> None:
        set_param(name, st.session_state[f"{name}_field"], default)

    if wanted not in options:
        add_notice(f"{wanted!r} is not known for {label!r}; showing {options[default]}.")
    st.session_state[f"{name}_field"] = wanted if wanted in options else default
    chosen = st.selectbox(
        label,
        list(options),
        format_func=lambda option: options[option],
        key=f"{name}_field",
        on_change=choose,
        width=width,
    )
    return str(chosen)


def slide(name: str, label: str, options: list[str], default: str, width: int = 420) -> str:
    """Draw a slider over named steps, and return the choice."""
    wanted = st.query_params.get(name, default)

    def choose() -> None:
        set_param(name, st.session_state[f"{name}_field"], default)

    st.session_state[f"{name}_field"] = wanted if wanted in options else default
    return str(st.select_slider(label, options, key=f"{name}_field", on_change=choose, width=width))


def write(name: str, label: str, placeholder: str = "", width: int = 170) -> str:
    """Draw a text field, and return its text."""

    def choose() -> None:
        set_param(name, st.session_state[f"{name}_field"].strip(), "")

    st.session_state[f"{name}_field"] = st.query_params.get(name, "")
    return str(
        st.text_input(
            label, key=f"{name}_field", on_change=choose, placeholder=placeholder, width=width
        )
    ).strip()


def set_param(name: str, value: str | None, default: str = "") -> None:
    """Write a parameter to the URL; a default value is left out."""
    if value in (None, default):
        st.query_params.pop(name, None)
    else:
        st.query_params[name] = str(value)
