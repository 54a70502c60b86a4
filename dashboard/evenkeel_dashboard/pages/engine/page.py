"""What limits the engine: memory or compute? And does speculation pay?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from html import escape

import pandas as pd
import streamlit as st

from evenkeel_dashboard.draw import markup, wording
from evenkeel_dashboard.draw.figures import Line, Scale, lines, scale_of, stacked_bars
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.draw.tiles import StateSummary
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame.page import colours, now_ms, refreshing, selection_bar
from evenkeel_dashboard.frame.selection import Selection
from evenkeel_dashboard.frame.zoom import zoomable
from evenkeel_dashboard.model.control import control
from evenkeel_dashboard.model.positions import Position, positions
from evenkeel_dashboard.pages.engine.data import EngineData, read_engine, waiting_frame
from evenkeel_dashboard.pages.engine.model import REASONS, Diagnosis, diagnose, load_of, speed_ups

_SOURCES = {
    "steps": "from the engines' step records",
    "metrics": "from vLLM's metrics, which do not record steps",
    "": "no engine data in this range",
}
_PERCENT = Scale("%", 100.0)
_PLAIN = Scale("", 1.0)


def show() -> None:
    """Draw the page."""
    selection = selection_bar(filters=("model",))
    refreshing(partial(_body, selection), selection.refresh_s())


def _body(selection: Selection) -> None:
    window = selection.window(now_ms())
    data = read_engine(selection, window)
    found = diagnose(load_of(data.rows, data.waiting))
    as_of = f"data as of {wording.clock_ms(now_ms())} · {_SOURCES[data.source]}"
    st.html(markup.verdict_banner(StateSummary(found.level, found.headline, found.advice), as_of))
    if not data.rows:
        st.html(
            markup.hint(
                "No engine reported in this range",
                "Serve through the runtime, which sends step records automatically, or have the "
                "collector scrape your own vLLM:",
                "evenkeel collect --scrape http://127.0.0.1:8000/metrics",
            )
        )
    else:
        _show_signs(found)
        _show_charts(data, window)
    _show_speculation(data)
    _show_actions(data)


def _show_signs(found: Diagnosis) -> None:
    with st.container(border=True, key="card-signs"):
        st.html(
            '<div class="ek-title">Evidence<small>which limit each signal suggests</small></div>'
        )
        rows = [
            [
                Cell(sign.name),
                Cell(sign.value, is_number=True),
                Cell(sign.suggests or "–", level="warning" if sign.suggests else ""),
                Cell(sign.meaning, wraps=True),
            ]
            for sign in found.signs
        ]
        st.html(markup.table(("signal", "measured", "suggests", "what it is"), rows, "Evidence"))


def _show_charts(data: EngineData, window: Window) -> None:
    palette = colours()
    first, second = palette.categories[0], palette.categories[1]
    waiting, reasons = waiting_frame(data.waiting, window)
    by_reason = [
        Line(
            reason,
            REASONS.get(reason, reason),
            palette.categories[(i + 1) % len(palette.categories)],
        )
        for i, reason in enumerate(reasons)
    ]
    charts = [
        ("running", "Requests in the engine", "average per interval",
         [Line("num_running", "running", first), Line("num_waiting", "waiting", second)], _PLAIN),
        ("kv", "KV cache", "used by running requests; plus cached",
         [Line("kv_live_ratio", "live", first, 2.4), Line("kv_resident_ratio", "resident", second)],
         _PERCENT),
        ("batch", "Batch", "requests per step",
         [Line("batch_size", "batch size", first)], _PLAIN),
        ("steps", "Step time", "mean and maximum per interval",
         [Line("step_mean_s", "mean", first, 2.4),
          Line("step_longest_s", "longest", second)], None),
        ("work", "Work done", "tokens per second",
         [Line("prefill_tokens_per_s", "prompt tokens", palette.prefill),
          Line("output_tokens_per_s", "output tokens", palette.decode)], _PLAIN),
        ("preemptions", "Preemptions", "requests evicted to make room",
         [Line("num_preempted", "preempted", palette.bad)], _PLAIN),
    ]  # fmt: skip
    drawn = []
    for name, title, meaning, series, scale in charts:
        series = [line for line in series if data.series[line.column].notna().any()]
        if series:
            drawn.append((name, title, meaning, series, scale))
    cells = [partial(_line_card, data.series, window, *chart) for chart in drawn]
    if data.evictions["evicted_per_s"].notna().any():
        lost = [Line("evicted_per_s", "recomputed", palette.bad)]
        words = "prompt tokens computed again per second after their cache entry was evicted"
        cells.append(
            partial(
                _line_card, data.evictions, window, "evictions", "Evictions", words, lost, _PLAIN
            )
        )
    if by_reason:
        bars = stacked_bars(waiting, by_reason, _PLAIN, window)
        # A legend even for a single reason, because the chart exists to show which one it is.
        bars.has_key = True
        cells.insert(1, partial(zoomable, bars, "waiting", "Why requests wait", "by reason"))
    for i in range(0, len(cells), 2):
        for column, draw in zip(st.columns(2, gap="small"), cells[i : i + 2], strict=False):
            with column:
                draw()
    if len(drawn) < len(charts):
        missing = [title for name, title, *_ in charts if name not in {d[0] for d in drawn}]
        st.caption(f"{wording.NO_DATA}: {', '.join(missing)}. Step records have them.")


def _line_card(
    frame: pd.DataFrame,
    window: Window,
    name: str,
    title: str,
    meaning: str,
    series: Sequence[Line],
    scale: Scale | None,
) -> None:
    chosen = scale or scale_of(frame, [line.column for line in series])
    figure = lines(frame, series, chosen, window)
    zoomable(figure, f"engine-{name}", title, meaning)


def _show_speculation(data: EngineData) -> None:
    with st.container(border=True, key="card-acceptance"):
        found = positions(data.positions)
        st.html(
            '<div class="ek-title">Speculation by draft position and source'
            "<small>a token counts only if all tokens before it were accepted</small></div>"
        )
        if not found:
            st.caption("No speculation in this range.")
            return
        tables = [("all drafts", found)]
        if len(data.sources) > 1:
            tables += [
                (f"{source['source'].replace('_', ' ')}", positions(source))
                for source in data.sources
            ]
        for column, (name, listed) in zip(st.columns(len(tables)), tables, strict=True):
            with column:
                st.html(
                    f'<div class="ek-label">{escape(name)}</div>'
                    + markup.table(_POSITION_HEADERS, _position_cells(listed), f"Positions, {name}")
                )
        drafted = data.positions["drafted_tokens"]
        accepted = data.positions["accepted_tokens"] or 0
        first = found[0].drafted
        length = 1 + accepted / first if first else None
        by = data.sources[0]["source"].replace("_", " ") if len(data.sources) == 1 else ""
        st.caption(
            f"Acceptance length {wording.NO_DATA if length is None else f'{length:.2f}'} tokens "
            f"per verify step; {wording.percent(accepted / drafted)} of all drafted tokens were "
            f"accepted.{f' Draft source: {by}.' if by else ''}"
        )
        _show_speed_up(data)


_POSITION_HEADERS = ("position", "drafted", "accepted", "of the first")


def _position_cells(found: Sequence[Position]) -> list[list[Cell]]:
    first = float(found[0].drafted) if found else 0.0
    return [
        [
            Cell(str(p.number), is_number=True),
            Cell(wording.count(p.drafted), is_number=True),
            Cell(wording.percent(p.rate), is_number=True),
            Cell(html=markup.phase_bar([("accepted", colours().decode, float(p.accepted))], first)),
        ]
        for p in found
    ]


def _show_speed_up(data: EngineData) -> None:
    found = speed_ups(data.tpots)
    if not found:
        st.caption("Speed-up: no data, there are no requests of one model with and without drafts.")
        return
    rows = [
        [
            Cell(s.model),
            Cell(f"{s.ratio:.2f} ×", is_number=True),
            Cell(f"{s.lower:.2f} … {s.upper:.2f}", is_number=True),
            Cell(wording.count(s.num_with), is_number=True),
            Cell(wording.count(s.num_without), is_number=True),
        ]
        for s in found
    ]
    headers = ("model", "speed-up of TPOT", "95 % interval", "with drafts", "without")
    st.html(markup.table(headers, rows, "Speed-up by speculation"))
    st.caption("Observed traffic, not a randomised comparison: for that, use bench/speculation.py.")


def _show_actions(data: EngineData) -> None:
    with st.container(border=True, key="card-actions"):
        st.html(
            '<div class="ek-title">Control actions<small>what control changed, newest first; '
            "burn rate before, and one window after</small></div>"
        )
        if not data.actions:
            st.caption("None in this range.")
            return
        rows = []
        for action in data.actions:
            said = control(action)
            rows.append(
                [
                    Cell(wording.short_moment_ms(action["time_ms"])),
                    Cell(said.lever),
                    Cell(said.change),
                    Cell(said.burn, is_number=True),
                    Cell(html=markup.badge(said.effect, said.level)),
                    Cell(said.reason or "–", wraps=True),
                ]
            )
        headers = ("when (UTC)", "lever", "change", "burn", "effect", "why")
        st.html(markup.table(headers, rows, "Control actions"))
