"""The Streamlit app: the frame around the pages. Run by `evenkeel dashboard`."""

from __future__ import annotations

import streamlit as st

from evenkeel_dashboard.draw.appearance import LOGO, style
from evenkeel_dashboard.frame.page import carry_selection, colours
from evenkeel_dashboard.frame.signing_in import require, sign_out_button
from evenkeel_dashboard.frame.zoom import scripts
from evenkeel_dashboard.pages import PAGES

ICON = str(LOGO.with_name("icon.svg"))
st.set_page_config(page_title="evenkeel", page_icon=ICON, layout="wide")
st.logo(str(LOGO), size="large", icon_image=str(LOGO))
st.html(style(colours()))
chosen = st.navigation(
    [
        st.Page(
            page.show, title=page.title, url_path=page.path, icon=page.icon, default=page.path == ""
        )
        for page in PAGES
    ],
    position="top",
)
st.set_page_config(page_title=f"{chosen.title} · evenkeel", page_icon=ICON, layout="wide")
carry_selection()
scripts()
if require():
    sign_out_button()
    chosen.run()
