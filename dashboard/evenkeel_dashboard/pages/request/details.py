"""Draws a request's details: who delayed it, its fields, and the links that lead on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from evenkeel.engines.engine_map import title_of
from evenkeel.engines.reported import OURS
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.compression import compression_words
from evenkeel_dashboard.draw.escaping import escape, exactly
from evenkeel_dashboard.draw.markup import Cell
from evenkeel_dashboard.draw.reported import said
from evenkeel_dashboard.draw.request_rows import prompt_words, short_id
from evenkeel_dashboard.frame import reading, signing_in
from evenkeel_dashboard.frame.page import selection
from evenkeel_dashboard.pages.request.delays import canary_words, prefix_miss, rivals
from evenkeel_dashboard.pages.request.model import answer_facts, gap_words
from evenkeel_dashboard.pages.request.token_model import Attributes

_HERE = Path(__file__).parent
# An answer sampled for the canary is regenerated when the server is idle.
_CANARY_WITHIN_MS = 3_600_000

Row = dict[str, Any]


def canary_later(row: Row) -> reading.Rows | None:
    """Start reading whether the answer was regenerated without drafts; None without drafts."""
    if not row["drafted_tokens"]:
        return None
    at_ms = row["time_ns"] // 1_000_000
    return reading.rows_later(
        _HERE / "request_canary.sql",
        {
            "request_id": row["request_id"],
            "from_ms": at_ms,
            "to_ms": at_ms + _CANARY_WITHIN_MS,
        },
    )


def show_delays(attributes: Attributes) -> None:
    """Draw the requests that delayed this one most, and why its prompt was not cached."""
    found, miss = rivals(attributes), prefix_miss(attributes)
    if not found and miss is None:
        return
    with st.container(border=True, key="card-delays"):
        st.html(
            '<div class="ek-title">Who delayed it<small>requests in the same steps, and the time '
            "that this one would have saved without each</small></div>"
        )
        params = selection().to_params()
        if found:
            rows = [
                [
                    Cell(
                        short_id(rival.request_id) or "of another tenant",
                        href=_request_link(rival.request_id, params),
                    ),
                    Cell(formats.seconds(rival.cost_s), is_number=True),
                    Cell(formats.count(rival.prefill_tokens), is_number=True),
                    Cell(formats.count(rival.decode_tokens), is_number=True),
                ]
                for rival in found
            ]
            headers = ("request", "sooner without it", "prompt tokens", "decoded tokens")
            st.html(markup.table(headers, rows, "Requests that delayed it"))
        if miss is not None:
            by = _request_link(miss.evicted_by, params)
            who = f" {markup.link('Evicted by this request.', by)}" if by else ""
            st.html(f'<div class="ek-remark" data-miss>{escape(miss.words)}{who}</div>')


def _request_link(request_id: str, params: dict[str, str]) -> str:
    return markup.page_link("request", {"request_id": request_id, **params}) if request_id else ""


def show_facts(row: Row, attributes: Attributes, canary: reading.Rows | None) -> None:
    """Draw the request's fields, and a link to its trace if a trace viewer is configured."""
    with st.container(border=True, key="card-facts"):
        st.html(markup.facts(_facts(row, attributes, canary)))
        _show_session_link(row)
        _show_trace_link(row["trace_id"])


def _facts(row: Row, attributes: Attributes, canary: reading.Rows | None) -> list[tuple[str, str]]:
    is_drafted = row["drafted_tokens"] is not None
    # Others' spans do not say whether a feature of ours was on.
    off = "off" if row["source"] == OURS else formats.NOT_REPORTED

    def duration(column: str) -> str:
        return said(formats.seconds(row[column]), row, column)

    def tokens(column: str) -> str:
        return said(formats.count(row[column]), row, column)

    facts = [
        ("model", row["model"]),
        ("engine", title_of(row["engine"]) if row.get("engine") else formats.NOT_REPORTED),
        ("tenant", row["tenant"] or "–"),
        ("session", row["session_id"] or "–"),
        ("prompt", prompt_words(row)),
        ("SLO class", row["slo_class"] or "–"),
        ("route", row["route"] or "–"),
        ("TTFT", duration("ttft_s")),
        ("TPOT", duration("tpot_s")),
        ("ITL p50", said(gap_words(row["itl_p50_s"]), row, "itl_p50_s")),
        ("ITL p99", said(gap_words(row["itl_p99_s"]), row, "itl_p99_s")),
        ("longest pause", duration("stall_s")),
        ("total", duration("e2e_s")),
        ("input tokens", tokens("input_tokens")),
        ("cached tokens", tokens("cached_tokens")),
        ("output tokens", tokens("output_tokens")),
        ("wasted tokens", _wasted_words(row)),
        ("cost", _cost_words(row)),
        *answer_facts(row),
        ("drafted tokens", formats.count(row["drafted_tokens"]) if is_drafted else off),
        ("accepted tokens", formats.count(row["accepted_tokens"]) if is_drafted else off),
        ("response cache", row["response_cache"] or off),
        ("compression", compression_words(attributes) if row["source"] == OURS else off),
        ("finish reason", row["finish_reason"] or "–"),
        ("precision", _precision(row)),
        ("trace", row["trace_id"]),
    ]
    if canary is not None and (checked := canary_words(canary())):
        facts.insert(-2, ("checked without drafts", checked))
    return facts


def _wasted_words(row: Row) -> str:
    """Return wasted tokens: none is 0 for our own runtime, which counts them."""
    if row["source"] == OURS:
        return formats.count(row["wasted_tokens"] or 0)
    return said(formats.count(row["wasted_tokens"]), row, "wasted_tokens")


def _cost_words(row: Row) -> str:
    cost = row.get("cost")
    return formats.NO_PRICE if cost is None else formats.money(cost, row.get("currency") or "")


def _precision(row: Row) -> str:
    """Return the data types of weights and KV cache; – if the engine did not say."""
    if not row.get("dtype"):
        return "–"
    return f"{row['dtype']}, KV {row.get('kv_cache_dtype') or '–'}"


def _show_session_link(row: Row) -> None:
    if not row["session_id"]:
        return
    wanted = {"session_id": row["session_id"], "of": row["tenant"] or ""}
    href = markup.page_link("sessions", {**wanted, **selection().to_params()})
    st.html(f'<div class="ek-remark">{markup.link("See what its session waited for", href)}</div>')


def _show_trace_link(trace_id: str) -> None:
    template = signing_in.settings().trace_url
    if template:
        href = template.replace("{trace_id}", trace_id)
        st.html(
            f'<a class="ek-link" href="{exactly(href)}" target="_blank" rel="noopener">'
            "Open the trace in the trace viewer</a>"
        )
