"""Where Streamlit takes Markdown, text from outside is escaped: it could load an image elsewhere.

Such an address may hold what a page has just read from the store.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import evenkeel_dashboard
from evenkeel.errors import StoreError
from evenkeel_dashboard.frame import reading, signing_in
from evenkeel_dashboard.frame.collector_api import CollectorError

ROOT = Path(evenkeel_dashboard.__file__).parent
# Calls whose first argument is Markdown.
TEXTS = {
    "caption", "error", "exception", "header", "info", "markdown", "metric", "subheader", "success",
    "title", "toast", "warning", "write",
}  # fmt: skip
LABELS = {
    "button", "checkbox", "expander", "multiselect", "number_input", "pills", "popover", "radio",
    "segmented_control", "select_slider", "selectbox", "slider", "spinner", "text_area",
    "text_input", "toggle",
}  # fmt: skip
# Our own fields, whose second argument is the label, and which pass it on under this name.
FIELDS = {"choice", "pick", "slide", "write"}
PASSED_ON = "label"
NUMBERS = {"d", ","}


def texts_of(call: ast.Call) -> Iterator[ast.expr]:
    """Return the arguments of a call that are drawn as Markdown."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="st"), attr=name) if name in TEXTS | LABELS:
            yield from call.args[:1]
            yield from (k.value for k in call.keywords if k.arg in ("body", "label"))
        case ast.Name(id=name) if name in FIELDS:
            yield from call.args[1:2]
    yield from (k.value for k in call.keywords if k.arg == "help")


def is_safe(text: ast.expr) -> bool:
    """Return whether a text is written here, is of numbers or times, or is escaped."""
    match text:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name.isupper() or name == PASSED_ON
        case ast.Subscript(value=ast.Name(id=name)):
            return name.isupper()
        case ast.Attribute(value=ast.Name(id="formats"), attr=name):
            return name.isupper()
        case ast.IfExp(body=body, orelse=orelse):
            return is_safe(body) and is_safe(orelse)
        case ast.BinOp(left=left, right=right):
            return is_safe(left) and is_safe(right)
        case ast.JoinedStr(values=values):
            return all(is_safe(value) for value in values)
        case ast.FormattedValue(value=_, format_spec=ast.JoinedStr(values=[ast.Constant(spec)])):
            return spec in NUMBERS
        case ast.FormattedValue(value=value):
            return is_safe(value)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="markup"), attr="plain")):
            return True
        case ast.Call(func=ast.Name(id="len")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="formats"), attr=name)):
            # A currency is text from a price file.
            return name != "money"
        case ast.Starred(value=ast.Name(id="words")):
            # Names of our own fields, from a constant.
            return True
    return False


def unescaped(source: str) -> list[str]:
    """Return the texts of a module that may be from outside and are drawn as Markdown."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [ast.unparse(text) for call in calls for text in texts_of(call) if not is_safe(text)]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("st.error(str(error))", ["str(error)"]),
        ("st.caption(f'by {name}')", ["f'by {name}'"]),
        ("st.text_input('x', help=text)", ["text"]),
        ("pick('slo', name, options)", ["name"]),
        ("st.caption(f'{formats.money(cost, currency)}')", ["f'{formats.money(cost, currency)}'"]),
        ("st.caption(markup.plain(words))", []),
        ("st.caption(f'{len(rows)} of {num:,} in {formats.seconds(s)}')", []),
    ],
)
def test_what_may_be_from_outside_is_found(source: str, found: list[str]) -> None:
    assert unescaped(source) == found


def test_no_text_from_outside_is_drawn_as_markdown() -> None:
    modules = sorted(ROOT.rglob("*.py"))
    found = {path.relative_to(ROOT): unescaped(path.read_text("utf-8")) for path in modules}
    assert {str(path): texts for path, texts in found.items() if texts} == {}


def test_values_in_an_error_of_the_store_are_no_markdown(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> None:
        import streamlit as st

        from evenkeel_dashboard.pages.explore.page import show_sql

        st.query_params["sql"] = "SELECT 1"
        show_sql()

    def refuse(_: str) -> None:
        raise StoreError("the query was refused: Cannot parse string '![x](https://a/?d=acme)'")

    monkeypatch.setattr(reading, "free_frame", refuse)
    app = AppTest.from_function(script, default_timeout=240).run()
    assert not app.exception
    assert r"\!\[x\]\(https\://a/?d=acme\)" in app.error[0].value


def test_an_answer_of_a_collector_to_a_sign_in_is_no_markdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def script() -> None:
        from evenkeel_dashboard.frame.signing_in import require

        assert not require()

    def refuse(*_: object) -> None:
        raise CollectorError("there is ![x](https://a)", 401)

    monkeypatch.setenv("EVENKEEL_DASHBOARD_SIGN_IN", "token")
    monkeypatch.setattr(signing_in, "ask_json", refuse)
    app = AppTest.from_function(script, default_timeout=240).run()
    app.button[0].click().run()
    assert not app.exception
    assert app.error[0].value.endswith(r"\!\[x\]\(https\://a\)")
