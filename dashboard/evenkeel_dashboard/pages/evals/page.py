"""Did the change pass its gates, and which answers changed?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from evenkeel.prompts.gate_verdict import JudgedRun, read_stored_run
from evenkeel.store import QUERIES
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.draw.markup import Cell, moment_cell, page_link
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.page import colours, now_ms, refreshing, selection
from evenkeel_dashboard.pages.evals.gates import show_gates
from evenkeel_dashboard.pages.evals.headline import (
    drift_sentence,
    failed_requests,
    is_live,
    ship_sentence,
)
from evenkeel_dashboard.pages.evals.live import show_feedback, show_review_queue, show_trend
from evenkeel_dashboard.pages.evals.model import (
    LEVELS,
    SliceScores,
    answer_text,
    marked_diff,
    slice_scores,
)
from evenkeel_dashboard.pages.evals.prompts import show_prompts

_HERE = Path(__file__).parent
MAX_CHANGED = 200
SHOWN_CHANGED = 20
MAX_RUNS = 8
REFRESH_S = 15
_HOUR_NS = 3_600 * 10**9
_AFTER_DRIFT = (
    "What would help: roll back what changed last, and read the failures in the review queue. Once "
    "that is fixed, start evenkeel eval live with a new --state folder."
)

Row = dict[str, Any]


def show() -> None:
    """Draw the page."""
    refreshing(_body, REFRESH_S if selection().is_live else None)


def _body() -> None:
    wanted = st.query_params.get("run_id", "")
    runs = reading.rows(_HERE / "eval_runs.sql", {"run_id": wanted})
    st.html(f'<div class="ek-asof">data as of {formats.clock_ms(now_ms())}</div>')
    if not runs:
        st.html(
            markup.hint(
                "No evaluations yet",
                "Compare two prompts, models or configurations on a golden dataset:",
                "evenkeel eval run --help",
            )
        )
        _show_production(runs)
        return
    chosen = next((run for run in runs if run["run_id"] == wanted), runs[0])
    if wanted and chosen["run_id"] != wanted:
        st.html(markup.remark(f"No run {wanted!r} is stored; showing the newest:", "evals"))
    gates = reading.rows(_HERE / "eval_gates.sql", {"run_id": chosen["run_id"]})
    _show_verdict(chosen, gates)
    _show_runs(runs, chosen)
    if is_live(chosen):
        show_gates(gates)
    else:
        _show_run(chosen, gates)
    _show_production(runs)


def _show_production(runs: list[Row]) -> None:
    """Draw the versions in use, and their answers in production."""
    show_prompts(runs)
    show_trend()
    show_review_queue()
    show_feedback()


def _show_verdict(run: Row, gates: list[Row]) -> None:
    judged = read_stored_run(run["run_id"], run)
    verdict = _verdict(judged)
    # The run's own words, unless they say no more than its verdict.
    reason = "" if judged.remark == verdict else judged.remark
    remark = f'<div class="ek-reason">{escape(reason)}</div>' if reason else ""
    sides = " · ".join(run["sides"]) or formats.NO_DATA
    level = LEVELS.get(verdict, "unknown")
    headline = drift_sentence(gates)
    next_step = _AFTER_DRIFT
    if not is_live(run):
        headline = ship_sentence(verdict, run["sides"], gates)
        next_step = _next_step(verdict, judged.other_changes, gates)
    st.html(
        f'<div class="ek-verdict ek-{level}" role="status"><div>'
        f'<div class="ek-row ek-request"><div class="ek-headline">'
        f"{escape(headline)}</div>"
        f"{markup.badge(verdict, level)}</div>"
        f'<div class="ek-reason">{escape(next_step)}</div>'
        f'<div class="ek-reason">{escape(sides)} · {escape(run["dataset"] or "no dataset")}, '
        f"{formats.count(run['num_items'])} items · {formats.moment_ms(run['started_ms'])} · "
        f"run {escape(run['run_id'])}</div>"
        f"{remark}</div></div>"
    )


def _show_run(run: Row, gates: list[Row]) -> None:
    _show_changed(
        reading.rows(
            _HERE / "eval_changed_items.sql", {"run_id": run["run_id"], "limit": MAX_CHANGED}
        )
    )
    show_gates(gates)
    _show_slices(slice_scores(reading.rows(_HERE / "eval_slices.sql", {"run_id": run["run_id"]})))
    _show_split(reading.rows(_HERE / "eval_latency_split.sql", {"run_id": run["run_id"]}))


def _next_step(verdict: str, other_changes: str, gates: list[Row]) -> str:
    """Return what to look at below, or to do next."""
    if verdict == "regressed":
        return "What would help: read the answers that got worse below, and try another version."
    if verdict == "inconclusive" and failed_requests(gates):
        return "What would help: find out why its requests fail. More items would not."
    if verdict == "could not measure":
        return "It counts neither for the candidate nor against it: repeat it once that is fixed."
    if verdict == "inconclusive":
        return "What would help: more items, or more repeats of each (evenkeel eval plan)."
    if verdict in LEVELS and other_changes:
        return f"It promotes no prompt: its sides also differ in {other_changes}."
    if verdict in LEVELS:
        return "Promote it below under Labels, if its answers read as you want them."
    return "Give the run a gate (--gate) for a verdict."


def _verdict(judged: JudgedRun) -> str:
    """Return the verdict of a run: its own, not one derived from its gates."""
    return judged.verdict or ("not known" if judged.remark else "no gate")


def _show_slices(slices: list[SliceScores]) -> None:
    with st.container(border=True, key="card-slices"):
        st.html(
            '<div class="ek-title">Scores by slice'
            "<small>mean score of the scored items, repeats as one; unscored is not wrong"
            "</small></div>"
        )
        if not slices:
            st.caption("This run has no scored answers.")
            return
        headers = (
            "slice", "scorer", "A", "B", "B − A", "scored", "unscored", "TTFT p50 A", "TTFT p50 B",
        )  # fmt: skip
        rows = [
            [
                Cell(s.name or "all items"),
                Cell(s.scorer or "–"),
                Cell(formats.percent(s.score_a), is_number=True),
                Cell(formats.percent(s.score_b), is_number=True),
                Cell(formats.points(s.delta), is_number=True),
                Cell(formats.count(s.num_scored), is_number=True),
                Cell(formats.count(s.num_unscored), is_number=True),
                Cell(formats.seconds(s.ttft_a_s), is_number=True),
                Cell(formats.seconds(s.ttft_b_s), is_number=True),
            ]
            for s in slices
        ]
        st.html(markup.table(headers, rows, "Scores by slice"))


def _show_changed(items: list[Row]) -> None:
    with st.container(border=True, key="card-changed"):
        total = items[0]["num_changed"] if items else 0
        lost = items[0]["num_lost"] if items else 0
        st.html(
            '<div class="ek-title">Changed answers<small>'
            f"{formats.count(lost)} got worse, {formats.count(total - lost)} better; "
            "the worst first, differing words marked</small></div>"
        )
        if not items:
            st.caption("Both sides scored the same on every item.")
            return
        texts = _texts(items[:SHOWN_CHANGED])
        if not texts:
            st.html(
                markup.remark(
                    "The answers themselves are not stored, so only the reasons of the scorer are "
                    "shown. To see answers, start the server and the collector with",
                    "--record-content, --redaction-content-tenants",
                )
            )
        headers = ("item", "tags", "A", "A answered", "B", "B answered", "why")
        cells = [_changed_cells(item, texts) for item in items]
        st.html(markup.table(headers, cells[:SHOWN_CHANGED], "Changed answers"))
        if len(cells) > SHOWN_CHANGED:
            with st.expander(f"{len(cells) - SHOWN_CHANGED} more"):
                st.html(markup.table(headers, cells[SHOWN_CHANGED:], "More changed answers"))


def _texts(items: list[Row]) -> dict[str, str]:
    """Return the answers by trace, if the runtime recorded them."""
    traces = tuple(sorted(item[f"trace_{side}"] for item in items for side in "ab"))
    window = {
        "from_ns": min(item["first_ns"] for item in items) - _HOUR_NS,
        "to_ns": max(item["last_ns"] for item in items) + _HOUR_NS,
    }
    found = reading.rows(QUERIES / "request_contents.sql", {"trace_ids": traces, **window})
    return {row["trace_id"]: answer_text(row["output_messages"]) for row in found}


def _changed_cells(item: Row, texts: dict[str, str]) -> list[Cell]:
    said = [texts.get(item[f"trace_{side}"], "") for side in "ab"]
    is_better = item["score_a"] > item["score_b"], item["score_b"] > item["score_a"]
    marked = escape(said[0]), escape(said[1])
    if all(said):
        marked = marked_diff(said[0], said[1], *is_better)
    cells = [Cell(item["item_id"], copies=item["item_id"]), Cell(", ".join(item["tags"]) or "–")]
    for side, text, better in zip("ab", marked, is_better, strict=True):
        label = item[f"label_{side}"] or formats.three_digits(item[f"score_{side}"])
        badge = markup.badge(label, "good" if better else "bad")
        href = page_link("request", {"trace_id": item[f"trace_{side}"], **selection().to_params()})
        answer = f'<span class="ek-diff">{text}</span>' if text else "not stored"
        cells += [Cell(html=badge, href=href), Cell(html=answer, wraps=bool(text))]
    why = item["explanation_b"] if is_better[0] else item["explanation_a"]
    return [*cells, Cell(why or "–", wraps=True)]


def _show_split(rows: list[Row]) -> None:
    with st.container(border=True, key="card-split"):
        st.html(
            '<div class="ek-title">Latency split<small>mean server time per answer, '
            "by phase; the phases add up</small></div>"
        )
        if not rows:
            st.caption(
                "No requests of this run are stored: its server does not export to this collector."
            )
            return
        palette = colours()
        phases = (
            ("queue", palette.queue),
            ("prefill", palette.prefill),
            ("decode", palette.decode),
        )
        st.html(markup.key(phases))
        longest_s = max(sum(row[f"{name}_mean_s"] or 0.0 for name, _ in phases) for row in rows)
        cells = [
            [
                Cell(row["side"]),
                Cell(formats.count(row["num_requests"]), is_number=True),
                *(
                    Cell(formats.seconds(row[f"{name}_mean_s"]), is_number=True)
                    for name, _ in phases
                ),
                Cell(
                    html=markup.phase_bar(
                        [(name, colour, row[f"{name}_mean_s"] or 0.0) for name, colour in phases],
                        longest_s,
                    )
                ),
                Cell(formats.seconds(row["ttft_p50_s"]), is_number=True),
                Cell(formats.seconds(row["e2e_p95_s"]), is_number=True),
                Cell(formats.count(row["input_tokens_mean"]), is_number=True),
                Cell(formats.count(row["output_tokens_mean"]), is_number=True),
            ]
            for row in rows
        ]
        headers = (
            "side", "answers", "queue", "prefill", "decode", "", "TTFT p50", "total p95",
            "input tokens", "output tokens",
        )  # fmt: skip
        st.html(markup.table(headers, cells, "Latency split by side"))


def _listed(runs: list[Row], chosen: Row) -> list[Row]:
    """Return the newest runs, and the chosen one even if it is older."""
    newest = runs[:MAX_RUNS]
    return newest if chosen in newest else [*newest, chosen]


def _show_runs(runs: list[Row], chosen: Row) -> None:
    with st.container(border=True, key="card-runs"):
        st.html('<div class="ek-title">Runs<small>the newest first</small></div>')
        rows = []
        for run in _listed(runs, chosen):
            verdict = _verdict(read_stored_run(run["run_id"], run))
            shown = " (shown)" if run is chosen else ""
            params = {"run_id": run["run_id"], **selection().to_params()}
            rows.append(
                [
                    Cell(run["run_id"] + shown, href=page_link("evals", params)),
                    Cell(html=markup.badge(verdict, LEVELS.get(verdict, "unknown"))),
                    moment_cell(run["started_ms"]),
                    Cell(run["dataset"] or "–"),
                    Cell(formats.count(run["num_items"]), is_number=True),
                    Cell(" · ".join(run["sides"])),
                ]
            )
        headers = ("run", "verdict", formats.zoned("started"), "dataset", "items", "sides")
        st.html(markup.table(headers, rows, "Evaluation runs"))
