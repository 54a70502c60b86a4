"""The frame of every page: the selection bar, live refresh, and failure messages."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import streamlit as st

from evenkeel.errors import StoreError
from evenkeel.times import to_datetime
from evenkeel_dashboard.draw import markup, wording
from evenkeel_dashboard.draw.appearance import LOGO, Palette, palette, style
from evenkeel_dashboard.frame import reading, signing_in
from evenkeel_dashboard.frame.contents import contents_later
from evenkeel_dashboard.frame.selection import DEFAULT_PRESET, FILTERS, PRESETS_S, Selection

_CARRIED = "carried_params"
_MOVED = "range_moved"
_RANGE_PARAMS = ("range", "from", "to", "live", *FILTERS)
_FILTER_NAMES = {
    "model": "model",
    "tenant": "tenant",
    "prompt": "prompt version",
    "slo_class": "SLO class",
}
_FILTER_COLUMNS = {
    "model": "models",
    "tenant": "tenants",
    "prompt": "prompts",
    "slo_class": "slo_classes",
}


def colours() -> Palette:
    """Return the palette of the theme in use."""
    return palette(st.context.theme.type)


def set_title(title: str) -> None:
    """Set the title in the browser's tab."""
    icon = str(LOGO.with_name("icon.svg"))
    st.set_page_config(page_title=title, page_icon=icon, layout="wide")


def set_up() -> None:
    """Set the app's title, logo, layout and style sheet."""
    set_title("evenkeel")
    st.logo(str(LOGO), size="large", icon_image=str(LOGO))
    st.html(style(colours()))


def carry_selection() -> None:
    """Restore range and filters after a menu click, which drops them from the URL."""
    own = {k: v for k, v in st.query_params.items() if k in _RANGE_PARAMS}
    if not own:
        for name, value in st.session_state.get(_CARRIED, {}).items():
            st.query_params[name] = value
    st.session_state[_CARRIED] = {k: v for k, v in st.query_params.items() if k in _RANGE_PARAMS}


def selection() -> Selection:
    """Return the selection in the URL."""
    return Selection.from_params(st.query_params)


def select(chosen: Selection) -> None:
    """Write a selection to the URL."""
    others = {k: v for k, v in st.query_params.items() if k not in _RANGE_PARAMS}
    st.query_params.from_dict(others | chosen.to_params())
    st.session_state[_CARRIED] = chosen.to_params()


def move_range(from_ms: int, to_ms: int) -> None:
    """Set the page's range; for callbacks inside `refreshing`."""
    select(selection().narrowed(from_ms, to_ms))
    st.session_state[_MOVED] = True


def chosen_of(name: str, options: Mapping[str, str]) -> str:
    """Return the choice in the URL; the first option is the default."""
    default = next(iter(options))
    wanted = st.query_params.get(name, default)
    return wanted if wanted in options else default


def choice(name: str, label: str, options: Mapping[str, str]) -> str:
    """Draw a choice that the URL keeps, and return it; the first option is the default."""
    default = next(iter(options))

    def choose() -> None:
        chosen = st.session_state[f"{name}_field"]
        if chosen in (None, default):
            st.query_params.pop(name, None)
        else:
            st.query_params[name] = chosen

    st.session_state[f"{name}_field"] = chosen_of(name, options)
    chosen = st.segmented_control(
        label,
        list(options),
        format_func=lambda option: options[option],
        key=f"{name}_field",
        on_change=choose,
        label_visibility="collapsed",
    )
    return str(chosen or default)


def selection_bar(filters: Sequence[str] = FILTERS) -> Selection:
    """Draw the range, the filters if they apply, and the live switch; return the selection."""
    current = selection()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        _range_field(current)
        for name, options in _filter_options(current).items() if filters else ():
            if name in filters:
                _filter_field(name, options, current)
        _live_switch(current)
    return selection()


def refreshing(body: Callable[[], None], every_s: int | None) -> None:
    """Draw a part of a page that refreshes on its own; a failure is shown in its place."""

    def guarded() -> None:
        if st.session_state.pop(_MOVED, False):
            # The range was changed from inside, so the selection bar must be redrawn too.
            st.rerun(scope="app")
        reading.leave()
        try:
            body()
        except StoreError as error:
            show_store_error(error)

    st.fragment(guarded, run_every=every_s)()


def as_of(newest_ms: int | None, end_ms: int | None = None) -> str:
    """Return the time of the data, and the age of the newest request in the range.

    `end_ms` is the end of a range that ends now; None is a fixed range, read just now.
    """
    newest = (
        "no request in this range"
        if newest_ms is None
        else f"newest request {wording.clock_ms(newest_ms)}, "
        f"{wording.seconds(max(0, now_ms() - newest_ms) // 1000)} ago"
    )
    return f"data as of {wording.clock_ms(end_ms or now_ms())} · {newest}"


def show_store_error(error: StoreError) -> None:
    """Show that the store cannot be read, and what to do."""
    settings = signing_in.settings()
    if "no store answers" in str(error) or "onnection refused" in str(error):
        text = (
            f"Nothing answers at {settings.shown_url}. Start the collector, or point the dashboard "
            "at another store with --query-url. This page retries automatically."
        )
        st.html(markup.hint("The store is not reachable", text, "evenkeel collect"))
        return
    st.html(markup.hint("The store refused a query", str(error), "evenkeel doctor"))


def now_ms() -> int:
    """Return the current time, in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def _range_field(current: Selection) -> None:
    options = list(PRESETS_S)
    fixed = "fixed range"
    shown = fixed if current.is_fixed else current.preset

    def choose() -> None:
        preset = st.session_state["range_field"]
        if preset != fixed:
            select(selection().relative(preset))

    st.session_state["range_field"] = shown
    st.selectbox(
        "time range",
        [*options, fixed] if current.is_fixed else options,
        format_func=lambda o: _range_words(current) if o == fixed else f"last {o}",
        key="range_field",
        on_change=choose,
        width=330 if current.is_fixed else 120,
    )


def _range_words(current: Selection) -> str:
    window = current.window(0)
    begin, end = (to_datetime(ms * 10**6) for ms in (window.from_ms, window.to_ms))
    day = "" if begin.date() == end.date() else f"{end:%d %b} "
    return f"{begin:%d %b %H:%M:%S} – {day}{end:%H:%M:%S} UTC"


def _filter_options(current: Selection) -> dict[str, list[str]]:
    """Return the values found in the range, and the chosen one even if it does not occur."""
    values: Mapping[str, Sequence[str]] = {}
    # The page itself shows the store's error.
    with contextlib.suppress(StoreError):
        values = contents_later(current.window(now_ms()))().values
    options = {}
    for name, column in _FILTER_COLUMNS.items():
        chosen = current.filters()[name]
        present = list(values.get(column, ()))
        options[name] = present + ([chosen] if chosen and chosen not in present else [])
    return options


def _filter_field(name: str, options: list[str], current: Selection) -> None:
    key = f"{name}_field"

    def choose() -> None:
        select(replace(selection(), **{name: st.session_state[key]}))

    st.session_state[key] = current.filters()[name]
    st.selectbox(
        _FILTER_NAMES[name],
        ["", *options],
        format_func=lambda value: value or "all",
        key=key,
        on_change=choose,
        width=170,
    )


def _live_switch(current: Selection) -> None:
    def choose() -> None:
        is_live = st.session_state["live_field"]
        chosen = selection()
        if is_live and chosen.is_fixed:
            chosen = chosen.relative(DEFAULT_PRESET)
        select(replace(chosen, is_live=is_live))

    every_s = current.refresh_s()
    st.session_state["live_field"] = every_s is not None
    st.toggle(
        "live" if every_s is None else f"live, every {every_s} s",
        key="live_field",
        on_change=choose,
        help="Refreshes automatically; switch it off to freeze the page",
    )
