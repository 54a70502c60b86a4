"""The Streamlit app: the frame around the pages. Run by `evenkeel dashboard`."""

from __future__ import annotations

import streamlit as st

from evenkeel_dashboard.frame.page import carry_selection, set_title, set_up
from evenkeel_dashboard.frame.signing_in import require, sign_out_button
from evenkeel_dashboard.frame.zoom import scripts
from evenkeel_dashboard.pages import PAGES

set_up()
chosen = st.navigation(
    [
        st.Page(
            page.show, title=page.title, url_path=page.path, icon=page.icon, default=page.path == ""
        )
        for page in PAGES
    ],
    position="top",
)
set_title(f"{chosen.title} · evenkeel")
carry_selection()
scripts()
if require():
    sign_out_button()
    chosen.run()
