"""Drafts on the Engine page."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest


@pytest.mark.parametrize("drafted", [0, None])
def test_without_drafted_tokens_there_is_no_share_of_them(drafted: int | None) -> None:
    def script(drafted: int | None) -> None:
        from types import SimpleNamespace
        from typing import Any

        from evenkeel_dashboard.pages.engine.speculation import show_speculation

        counts = {"drafted_by_position": [4], "accepted_by_position": [2]}
        tokens = {"drafted_tokens": drafted, "accepted_tokens": drafted}
        sources = [{"source": "![x](http://a)", **counts}]
        data: Any = SimpleNamespace(
            positions=counts | tokens, sources=sources, gains=[], canaries=[]
        )
        show_speculation(data)

    app = AppTest.from_function(script, args=(drafted,), default_timeout=240).run()
    assert not app.exception
    said = app.caption[0].value
    assert "no data of all drafted tokens" in said
    assert r"\!\[x\]" in said, "a source is named by whoever sends spans"
