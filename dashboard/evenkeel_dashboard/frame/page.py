"""The frame of every page: the selection bar, live refresh, and failure messages."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from urllib.parse import unquote, urlsplit

import streamlit as st

from evenkeel.errors import StoreError, StoreLoginError
from evenkeel_dashboard.draw import formats, markup, zones
from evenkeel_dashboard.draw.appearance import LOGO, Palette, palette, style
from evenkeel_dashboard.frame import reading, signing_in
from evenkeel_dashboard.frame.contents import MOST_VALUES, contents_later
from evenkeel_dashboard.frame.fields import add_notice
from evenkeel_dashboard.frame.selection import (
    DEFAULT_PRESET,
    FILTERS,
    PRESETS_S,
    ZONE,
    Selection,
    parse_time_ms,
    range_problem,
)

_CARRIED = "carried_params"
_REDRAWN = "range_moved"
_UNFITTED = "range_without_data"
_TYPED_PROBLEM = "typed_range_problem"
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


def last_segment() -> str:
    """Return the last part of the path in the browser's address: the page's own; "" is Health."""
    return unquote(urlsplit(st.context.url or "").path).rstrip("/").rpartition("/")[2]


def carry_selection() -> None:
    """Restore range and filters after a menu click, which drops them from the URL.

    The time zone is also restored if a link has only a range.
    """
    carried: dict[str, str] = st.session_state.get(_CARRIED, {})
    own = {k: v for k, v in st.query_params.items() if k in _RANGE_PARAMS}
    for name, value in carried.items():
        if not own or (name == ZONE and ZONE not in st.query_params):
            st.query_params[name] = value
    st.session_state[_CARRIED] = selection().to_params()
    _use_zone()


def _use_zone() -> None:
    zones.use_zone(zones.find_zone(selection().zone, st.context.timezone) or UTC)


def selection() -> Selection:
    """Return the selection in the URL."""
    return Selection.from_params(st.query_params)


def select(chosen: Selection) -> None:
    """Write a selection to the URL."""
    others = {k: v for k, v in st.query_params.items() if k not in _RANGE_PARAMS and k != ZONE}
    st.query_params.from_dict(others | chosen.to_params())
    st.session_state[_CARRIED] = chosen.to_params()


def move_range(from_ms: int, to_ms: int) -> None:
    """Set the page's range; for callbacks inside `refreshing`."""
    select(selection().narrowed(from_ms, to_ms))
    redraw_page()


def redraw_page() -> None:
    """Have all parts of the page drawn again; for callbacks inside `refreshing`."""
    st.session_state[_REDRAWN] = True


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
    """Draw the range, the filters if they apply, and the live switch; return the selection.

    A range that ends now starts no earlier than the stored data.
    """
    problem = range_problem(st.query_params)
    if zones.find_zone(selection().zone, st.context.timezone) is None:
        problem = f"{problem} {selection().zone!r} is not a time zone; times are in UTC.".strip()
    current = replace(selection(), data_from_ms=_data_from_ms())
    st.session_state[_UNFITTED] = current.data_from_ms is None and not current.is_fixed
    with st.container(
        horizontal=True, vertical_alignment="bottom", gap="small", key="selection-bar"
    ):
        _range_field(current)
        _range_buttons(current)
        for name, options in _filter_options(current).items() if filters else ():
            if name in filters:
                _filter_field(name, options, current)
        _live_switch(current)
    add_notice(problem)
    return current


def _data_from_ms() -> int | None:
    """Return when the stored data starts; None if there is none, or the store does not answer."""
    with contextlib.suppress(StoreError):
        found = reading.minute_rows_later(reading.SHARED / "first_request.sql", {})()
        return found[0]["first_ms"] if found else None
    return None


def refreshing(body: Callable[[], None], every_s: int | None) -> None:
    """Draw a part of a page that refreshes on its own; a failure is shown in its place."""

    def guarded() -> None:
        if not signing_in.still_signed_in():
            st.rerun(scope="app")
        if st.session_state.pop(_REDRAWN, False):
            # Something was changed from inside that other parts show, too, such as the range.
            st.rerun(scope="app")
        _use_zone()
        reading.leave()
        try:
            body()
        except StoreError as error:
            show_store_error(error)
        # Not before the body, which may have been run for a click on its button.
        if st.session_state.get(_UNFITTED) and _data_from_ms() is not None:
            st.session_state[_UNFITTED] = False
            st.rerun(scope="app")

    st.fragment(guarded, run_every=every_s)()


def as_of(newest_ms: int | None, end_ms: int | None = None) -> str:
    """Return the time of the data, and the age of the newest request in the range.

    `end_ms` is the end of a range that ends now; None is a fixed range, read just now.
    """
    newest = (
        "no request in this range"
        if newest_ms is None
        else f"newest request {formats.clock_ms(newest_ms)}, "
        f"{formats.age((now_ms() - newest_ms) / 1000)} ago"
    )
    return f"data as of {formats.clock_ms(end_ms or now_ms())} · {newest}"


def show_store_error(error: StoreError) -> None:
    """Show that the store cannot be read, and what to do."""
    settings = signing_in.settings()
    if "no store answers" in str(error) or "onnection refused" in str(error):
        text = (
            f"Nothing answers at {settings.shown_url}. Start the collector, or point the dashboard "
            "at another store with --store-url. This page retries automatically."
        )
        st.html(markup.hint("The store is not reachable", text, "evenkeel collect"))
        return
    title = "The store refused a query"
    if isinstance(error, StoreLoginError):
        title = "The store asks for a login"
    st.html(markup.hint(title, str(error), "evenkeel doctor"))


def now_ms() -> int:
    """Return the current time, in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def _range_field(current: Selection) -> None:
    options = list(PRESETS_S)
    fixed = "fixed range"
    shown = fixed if current.is_fixed else current.preset
    window = current.window(now_ms())
    words = formats.range_ms(window.from_ms, window.to_ms)

    def choose() -> None:
        preset = st.session_state["range_field"]
        if preset != fixed:
            select(selection().relative(preset))

    st.session_state["range_field"] = shown
    st.selectbox(
        "time range",
        [*options, fixed] if current.is_fixed else options,
        format_func=lambda o: words if o == fixed else f"last {o}",
        key="range_field",
        on_change=choose,
        width=330 if current.is_fixed else 120,
    )


def _range_buttons(current: Selection) -> None:
    """Draw earlier, later and zoom out, and the fields for a zone and a range of your own."""

    def move(halves: int) -> None:
        select(current.shifted(now_ms(), halves))

    with st.container(horizontal=True, gap=None, width="content", key="range-buttons"):
        st.button("", icon=":material/chevron_left:", help="earlier", key="earlier",
                  on_click=move, args=(-1,))  # fmt: skip
        st.button("", icon=":material/chevron_right:", help="later", key="later",
                  on_click=move, args=(1,), disabled=not current.is_fixed)  # fmt: skip
        st.button("", icon=":material/zoom_out:", help="zoom out", key="zoom-out",
                  on_click=lambda: select(current.widened(now_ms())))  # fmt: skip
        with st.popover(
            markup.plain(zones.current_zone_name()),
            icon=":material/schedule:",
            help="time zone, and a range of your own",
            key="time-fields",
        ):
            _zone_field(current)
            _typed_range(current)


def _zone_field(current: Selection) -> None:
    browser = st.context.timezone or "UTC"
    names = {"utc": "UTC", zones.LOCAL: f"this browser's, {browser}"}
    shown = current.zone.lower() or "utc"
    shown = shown if shown in names else current.zone

    def choose() -> None:
        typed = str(st.session_state["zone_field"] or "utc")
        select(replace(selection(), zone="" if typed == "utc" else typed))

    st.session_state["zone_field"] = shown
    st.selectbox(
        "time zone",
        list(names) if shown in names else [*names, shown],
        format_func=lambda name: names.get(name, name),
        key="zone_field",
        on_change=choose,
        accept_new_options=True,
        help="UTC, this browser's, or any IANA name such as Europe/Berlin",
    )


def _typed_range(current: Selection) -> None:
    zone = zones.shown_zone()

    def show() -> None:
        ends = [
            parse_time_ms(str(st.session_state[f"{end}_typed"]).strip(), zone)
            for end in ("from", "to")
        ]
        begin_ms, end_ms = ends
        if begin_ms is None or end_ms is None or begin_ms >= end_ms:
            st.session_state[_TYPED_PROBLEM] = (
                "The range ends before it starts."
                if None not in ends
                else "Write times such as 2026-11-20 10:00."
            )
            return
        select(selection().narrowed(begin_ms, end_ms))

    problem = st.session_state.pop(_TYPED_PROBLEM, "")
    window = current.window(now_ms())
    with st.form("typed-range", border=False):
        for end, at_ms in (("from", window.from_ms), ("to", window.to_ms)):
            if not problem:
                st.session_state[f"{end}_typed"] = zones.typed_time(at_ms)
            st.text_input(formats.zoned(end), key=f"{end}_typed")
        if problem:
            st.error(markup.plain(problem))
        st.form_submit_button("Show this range", on_click=show)


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
        select(selection().filtered(name, str(st.session_state[key] or "").strip()))

    st.session_state[key] = current.filters()[name]
    st.selectbox(
        _FILTER_NAMES[name],
        ["", *options],
        format_func=lambda value: value or "all",
        key=key,
        # Of more values, only the most frequent are listed; any other can be typed.
        accept_new_options=len(options) >= MOST_VALUES,
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
        "live" if every_s is None else f"live, every {every_s:d} s",
        key="live_field",
        on_change=choose,
        help="Refreshes automatically; switch it off to freeze the page",
    )
