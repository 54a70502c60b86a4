"""What limits the engine: memory or compute? And does speculation pay?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from evenkeel.engines.engine_map import known_engines
from evenkeel.engines.metric_query import REFERENCE
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.charts import (
    Line,
    Scale,
    lines,
    scale_of,
    stacked_bars,
    time_ms,
)
from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.draw.tiles import StateSummary
from evenkeel_dashboard.draw.wasted import wasted_markup
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame.fields import pick
from evenkeel_dashboard.frame.page import colours, now_ms, refreshing, selection_bar
from evenkeel_dashboard.frame.selection import Selection
from evenkeel_dashboard.frame.zoom import zoomable
from evenkeel_dashboard.pages.engine.actions import show_actions
from evenkeel_dashboard.pages.engine.data import EngineData, read_engine, waiting_frame
from evenkeel_dashboard.pages.engine.metrics import is_column_reported, names_of
from evenkeel_dashboard.pages.engine.model import (
    QUEUE_FROM,
    REASONS,
    EngineVerdict,
    Sign,
    diagnose,
    load_of,
    verdict,
)
from evenkeel_dashboard.pages.engine.speculation import show_speculation
from evenkeel_dashboard.pages.engine.tables import show_histograms, show_steps

ENGINES = {"": "all", **{name: each.title for name, each in known_engines().items()}}
_LOOK_FOR = (
    "The banner names what limits the engine, and the table below it shows the evidence. Then "
    "check why requests wait and whether speculation pays off."
)
_STEP_RECORDS = (
    "Batch and step time, the step's token budget, evictions and stragglers come from step "
    "records, which evenkeel's own runtime sends."
)
# Charts of events that a healthy engine never has.
_ONLY_IF_ANY = ("preemptions",)
# The verdict is about the last twelfth of the range, 1 to 5 min.
_LAST_PART = 12
_LAST_LEAST_S, _LAST_MOST_S = 60, 300
_PERCENT = Scale("%", 100.0)
_PLAIN = Scale("", 1.0)


def show() -> None:
    """Draw the page."""
    selection = selection_bar(filters=("model",))
    st.html(markup.lead(_LOOK_FOR))
    engine = pick("engine", "engine", ENGINES, 200)
    refreshing(partial(_body, selection, engine), selection.refresh_s())


def _body(selection: Selection, engine: str) -> None:
    window = selection.window(now_ms())
    data = read_engine(selection, window, engine)
    is_past = selection.is_past(now_ms())
    found = _verdict(data, window, is_past=is_past)
    as_of = f"data as of {formats.clock_ms(now_ms())} · {_source_words(data)}"
    headline = found.headline
    if found.level == "unknown" and data.engines:
        reports = "reported" if is_past else "reports"
        headline = f"{names_of(data.engines)} {reports} neither a queue nor its KV cache"
    st.html(markup.verdict_banner(StateSummary(found.level, headline, found.advice), as_of))
    if not data.rows and not data.histograms:
        who = f"{ENGINES[engine]} reported nothing" if engine else "No engine reported"
        st.html(
            markup.hint(
                f"{who} in this range",
                "Serve through the runtime, which sends step records automatically, or have the "
                "collector scrape your engine (docs/start/engines.md):",
                "evenkeel collect --scrape http://127.0.0.1:8000/metrics",
            )
        )
    else:
        _show_signs(found, data)
        _show_charts(data, window)
        show_histograms(data)
        show_steps(data)
    absent = _ours_alone(data)
    if "wasted tokens" not in absent:
        with st.container(border=True, key="card-wasted"):
            st.html(
                '<div class="ek-title">Wasted tokens<small>computed for nothing, by cause</small>'
                f"</div>{wasted_markup(data.wasted, colours())}"
            )
    if "drafts by position" not in absent:
        show_speculation(data)
    if "control actions" not in absent:
        show_actions(data, selection, window)
    if absent:
        words = f"Not reported by {names_of(data.engines)}: {', '.join(absent)}."
        st.caption(
            f"{markup.plain(words)} They come from requests and controllers of evenkeel's own "
            "runtime."
        )


def _ours_alone(data: EngineData) -> list[str]:
    """Return the cards that another engine has nothing for; [] with step records."""
    if not data.engines:
        return []
    has = {
        "wasted tokens": bool(data.wasted.by_cause),
        "drafts by position": bool(data.positions["drafted_tokens"]),
        "control actions": bool(data.actions),
    }
    return [name for name, is_there in has.items() if not is_there]


def _verdict(data: EngineData, window: Window, *, is_past: bool) -> EngineVerdict:
    """Return what limits the engine in the last part of the window, or limited it before."""
    last_s = min(_LAST_MOST_S, max(_LAST_LEAST_S, window.duration_s / _LAST_PART))
    since_ms = window.to_ms - round(last_s * 1000)

    def is_recent(row: Mapping[str, Any]) -> bool:
        return time_ms(row["bucket"]) >= since_ms

    has_flags = set(data.engines) <= {REFERENCE}
    queued = [row for row in data.rows if (row["num_waiting"] or 0.0) >= QUEUE_FROM]
    busy = {row["bucket"] for row in queued}
    recent = diagnose(
        load_of(
            [row for row in data.rows if is_recent(row)] or data.rows[-1:],
            [row for row in data.waiting if is_recent(row)],
        ),
        has_flags=has_flags,
    )
    before = diagnose(
        load_of(queued, [row for row in data.waiting if row["bucket"] in busy]),
        has_flags=has_flags,
    )
    until = ""
    if queued:
        until_ms = time_ms(queued[-1]["bucket"]) + window.step_s * 1000
        since = formats.seconds(max(0, window.to_ms - until_ms) // 1000)
        until = f"{formats.clock_ms(until_ms)}, {since} ago"
        if is_past:
            until = f"{formats.moment_ms(until_ms)}, {since} before the range's end"
    return verdict(recent, before, formats.span_of(round(last_s)), until, is_past=is_past)


def _source_words(data: EngineData) -> str:
    """Return where the data comes from, and who else reports."""
    words = "no engine data in this range"
    if data.source == "steps":
        words = "from the engines' step records"
    elif data.engines:
        several = ", added up; choose one above" if len(data.engines) > 1 else ""
        words = f"from the metrics of {names_of(data.engines)}{several}; no step records"
    if data.others:
        how = ": choose it above" if set(data.others) <= set(ENGINES) else ""
        words += f"; {names_of(data.others)} also reported{how}"
    return words


def _show_signs(found: EngineVerdict, data: EngineData) -> None:
    with st.container(border=True, key="card-signs"):
        st.html(
            '<div class="ek-title">Evidence<small>which limit each signal suggests, '
            f"{escape(found.measured)}</small></div>"
        )
        rows = [
            [
                Cell(sign.name),
                Cell(_sign_value(sign, data.engines), is_number=True),
                Cell(sign.suggests or "–", level="warning" if sign.suggests else ""),
                Cell(sign.meaning, wraps=True),
            ]
            for sign in found.signs
        ]
        st.html(markup.table(("signal", "measured", "suggests", "what it is"), rows, "Evidence"))


def _sign_value(sign: Sign, engines: Sequence[str]) -> str:
    is_silent = sign.value == formats.NO_DATA and not is_column_reported(sign.column, engines)
    return formats.NOT_REPORTED if is_silent else sign.value


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
        ("kv", "KV cache", "share of blocks; cached prefixes give way when requests need blocks",
         [Line("kv_live_ratio", "in use by requests", first, 2.4),
          Line("kv_resident_ratio", "with cached prefixes", second)],
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
        ("hits", "Prefix cache", "share of prompt tokens found",
         [Line("prefix_hit_ratio", "found", first)], _PERCENT),
        ("acceptance", "Draft acceptance", "accepted / drafted tokens",
         [Line("acceptance_rate", "accepted", first)], _PERCENT),
    ]  # fmt: skip
    if data.source == "steps":
        # Step records have no prefix hits; acceptance is drawn with speculation.
        charts = charts[:-2]
    drawn, none, missing, silent = [], [], [], []
    for name, title, meaning, series, scale in charts:
        unreported = [each for each in series if not is_column_reported(each.column, data.engines)]
        silent += _silent_words(title, unreported, len(series))
        if len(unreported) == len(series):
            continue
        series = [line for line in series if data.series[line.column].notna().any()]
        if not series:
            missing.append(title)
        elif name in _ONLY_IF_ANY and not _has_any(data.series, series[0].column):
            none.append(title)
        else:
            drawn.append((name, title, meaning, series, scale))
    cells = [partial(_line_card, data.series, window, *chart) for chart in drawn]
    if not _has_any(data.evictions, "evicted_per_s"):
        if not data.engines:
            none.append("Evictions")
    else:
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
    if none:
        st.caption(markup.plain(f"None in this range: {', '.join(none)}."))
    if missing:
        st.caption(markup.plain(f"{formats.NO_DATA}: {', '.join(missing)}."))
    if silent:
        words = f"Not reported by {names_of(data.engines)}: {', '.join(silent)}. {_STEP_RECORDS}"
        st.caption(markup.plain(words))


def _silent_words(title: str, unreported: Sequence[Line], num_lines: int) -> list[str]:
    """Return what an engine does not report of a chart: all of it, or some lines."""
    if not unreported:
        return []
    if len(unreported) == num_lines:
        return [title]
    return [f"{title} ({', '.join(line.name for line in unreported)})"]


def _has_any(frame: pd.DataFrame, column: str) -> bool:
    return bool((frame[column] > 0).any())


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
