"""Scrolls to what a click added to a page."""

from __future__ import annotations

import streamlit as st

_scrolls = st.components.v2.component(
    "evenkeel_scroll",
    # Once for each reason: a refresh of the page must not move it.
    js="""export default ({ parentElement, data }) => {
  if (globalThis.ekScrolled === data.reason) return;
  globalThis.ekScrolled = data.reason;
  const card = parentElement.closest('[class*="st-key-card-"]') ?? parentElement;
  requestAnimationFrame(() => card.scrollIntoView({ block: "center", behavior: "smooth" }));
}
""",
    isolate_styles=False,
)


def scroll_here(name: str, reason: str) -> None:
    """Scroll to the card around this call, once for each reason, such as the picked point."""
    _scrolls(key=f"scroll-{name}", data={"reason": reason})
