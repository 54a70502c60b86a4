"""Streamlit's start page with the page's title and a skeleton, so that the first paint is ours."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

import streamlit

_INDEX = Path(streamlit.__file__).parent / "static" / "index.html"
_SKELETON = Path(__file__).parents[1] / "draw" / "assets" / "skeleton.html"
_SHEET = re.compile(r'<link rel="stylesheet"[^>]*>')
_TITLE = "<title>Streamlit</title>"
# Streamlit's client otherwise asks for its server under the page's own path first, which is a 404.
# It also remembers an open menu, which on a phone would cover the next page that is loaded.
_BASE = """<script>
  { const path = location.pathname.replace(/{name}\\/*$/, "").replace(/\\/*$/, "/");
    window.__streamlit = { BACKEND_BASE_URL: location.origin + path };
    performance.mark("evenkeel-start");
    try {
      if (innerWidth <= 768)
        for (const key of Object.keys(localStorage))
          if (key.startsWith("stSidebarCollapsed-")) localStorage.removeItem(key);
    } catch {} }
</script>"""


def start_page(title: str, path: str = "") -> str:
    """Return the HTML that the browser loads first for a page.

    It is Streamlit's own; a part that a newer Streamlit does not have stays as it is. Before the
    page's own name, its address may have a prefix, set by a proxy.

    Args:
        title: The page's name.
        path: Its path, without the prefix; "" is the start page.
    """
    base = _BASE.replace("{name}", re.escape(path))
    found = _INDEX.read_text(encoding="utf-8")
    # A style sheet in the head would hold up the first paint; the skeleton has its own styles.
    sheets = "\n".join(_SHEET.findall(found))
    found = _SHEET.sub("", found).replace("</body>", f"{sheets}\n</body>", 1)
    skeleton = _SKELETON.read_text(encoding="utf-8")
    for place, ours in (
        (_TITLE, f"<title>{escape(title)} · evenkeel</title>\n{base}"),
        ("<body>", f"<body>\n{skeleton}"),
    ):
        found = found.replace(place, ours, 1)
    return found
