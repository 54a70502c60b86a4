"""The page shown for an address that no page has."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from evenkeel_dashboard.draw import markup
from evenkeel_dashboard.frame.page import selection


def show_missing(path: str, pages: Mapping[str, str], meant: str) -> None:
    """Draw which page is missing, the page that was probably meant, and a link to each page.

    Args:
        path: The path asked for.
        pages: The path of each page by its title.
        meant: Title of the page with the most similar name; "" if there is none.
    """
    question = f"Did you mean {meant}?" if meant else "These pages exist:"
    st.html(markup.hint(f"There is no page named {path!r}", question))
    params = selection().to_params()
    ordered = sorted(pages, key=lambda title: title != meant)
    links = " · ".join(markup.link(t, markup.page_link(pages[t], params)) for t in ordered)
    st.html(f'<div class="ek-pages">{links}</div>')
