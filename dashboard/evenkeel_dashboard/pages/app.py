"""The Streamlit app: the frame around the pages. Run by `http_app.py`."""

from __future__ import annotations

import streamlit as st

from evenkeel_dashboard.frame.action import show_done
from evenkeel_dashboard.frame.fields import notices_here
from evenkeel_dashboard.frame.page import carry_selection, last_segment, set_title, set_up
from evenkeel_dashboard.frame.signing_in import require, sign_out_button
from evenkeel_dashboard.frame.zoom import scripts
from evenkeel_dashboard.pages import PAGES, page_missing

set_up()
asked = last_segment()
pages = [
    st.Page(
        page.show, title=page.title, url_path=page.path, icon=page.icon, default=page.path == ""
    )
    for page in PAGES
]
if asked not in {page.path for page in PAGES}:
    # Otherwise Streamlit shows the start page behind a dialog of its own.
    missing = page_missing(asked)
    pages.append(
        st.Page(missing.show, title=missing.title, url_path=missing.path, visibility="hidden")
    )
chosen = st.navigation(pages, position="top")
set_title(f"{chosen.title} · evenkeel")
carry_selection()
scripts()
if require():
    sign_out_button()
    notices_here()
    show_done()
    chosen.run()
