"""Builds table rows for requests and alerts: cell texts and links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenkeel.slo.ended_alert import past_annotations
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.appearance import Palette
from evenkeel_dashboard.draw.markup import Cell, badge, link, moment_cell, page_link, phase_bar
from evenkeel_dashboard.draw.reported import said

Row = Mapping[str, Any]

RANKINGS = {
    "ttft": "TTFT",
    "e2e": "total",
    "stall": "stall",
    "tpot": "TPOT",
    "failed": "failed",
}
_LEVELS = {"ok": "", "error": "bad", "aborted": "warning", "shed": "warning"}


def request_headers() -> tuple[str, ...]:
    """Return the headers of `request_cells`; the arrival's names the time zone."""
    return (
        "request",
        formats.zoned("arrived"),
        "TTFT",
        "where the time went",
        "total",
        "input",
        "cached",
        "output",
        "model",
        "tenant",
        "prompt",
        "end",
    )


def request_cells(
    rows: Sequence[Row], params: Mapping[str, str], colours: Palette
) -> list[list[Cell]]:
    """Return one row of cells per request; all bars share one scale."""
    longest_s = max((row["e2e_s"] or 0.0 for row in rows), default=0.0)
    return [_request_cells(row, params, colours, longest_s) for row in rows]


def _request_cells(
    row: Row, params: Mapping[str, str], colours: Palette, longest_s: float
) -> list[Cell]:
    phases = [
        ("queue", colours.queue, row["queue_s"] or 0.0),
        ("prefill", colours.prefill, row["prefill_s"] or 0.0),
        ("decode", colours.decode, row["decode_s"] or 0.0),
    ]
    # The engine did nothing for it, so that there is nothing to be missing.
    is_cached = row.get("response_cache") in ("exact", "semantic")
    return [
        Cell(
            short_id(row["request_id"]),
            href=request_href(row, params),
            copies=row["request_id"],
            title=row["request_id"],
        ),
        Cell(formats.short_clock_ms(row["time_ms"]), sorts_as=row["time_ms"]),
        Cell(said(formats.seconds(row["ttft_s"]), row, "ttft_s"), is_number=True),
        Cell(
            html="answered from the cache"
            if is_cached
            else phase_bar(phases, longest_s)
            or said(formats.NO_DATA, row, "queue_s", "prefill_s", "decode_s"),
            sorts_as=sum(value for _, _, value in phases),
        ),
        Cell(formats.seconds(row["e2e_s"]), is_number=True),
        *(
            Cell(
                "–"
                if is_cached and row[name] is None
                else said(formats.count(row[name]), row, name),
                is_number=True,
            )
            for name in ("input_tokens", "cached_tokens", "output_tokens")
        ),
        Cell(row["model"]),
        Cell(row["tenant"] or "–"),
        Cell(prompt_words(row)),
        end_cell(row),
    ]


def request_href(row: Row, params: Mapping[str, str]) -> str:
    """Return the link to the request's page; it includes the arrival to speed up the lookup."""
    return page_link(
        "request", {"request_id": row["request_id"], "at": str(row["time_ms"]), **params}
    )


def end_cell(row: Row) -> Cell:
    """Return the outcome of a request, with the reason if it failed."""
    reason = row["error_type"] or row["finish_reason"]
    text = row["status"] if reason in (None, row["status"]) else f"{row['status']}: {reason}"
    return Cell(text, level=_LEVELS.get(row["status"], ""))


def prompt_words(row: Row) -> str:
    """Return name@version of the request's prompt."""
    if row["prompt_name"] is None:
        return "–"
    return f"{row['prompt_name']}@{row['prompt_version'] or '?'}"


def short_id(request_id: str) -> str:
    """Return the end of an id, long enough to distinguish the requests of a table."""
    return request_id if len(request_id) <= 14 else f"…{request_id[-12:]}"


def alert_headers() -> tuple[str, ...]:
    """Return the headers of `alert_cells`; the time of firing names the time zone."""
    return (
        "state",
        "SLO",
        "severity",
        formats.zoned("fired"),
        "for",
        "burn",
        "what it says",
        "top cause",
        "examples",
    )


def alert_cells(alert: Row, end_ms: int, params: Mapping[str, str]) -> list[Cell]:
    """Return one alert's cells: state, summary, evidence, and example requests.

    Args:
        alert: A row of the query `alerts`.
        end_ms: Until when one that fires has fired: now, or the end of a fixed range.
        params: The selection's parameters, for links.
    """
    levels = {"firing": "bad", "pending": "warning", "resolved": "good"}
    began_ms = alert["fired_ms"] or alert["started_ms"]
    lasted_s = ((alert["ended_ms"] or end_ms) - began_ms) / 1000
    annotations = alert["annotations"] or {}
    if alert["state"] == "resolved":
        annotations = past_annotations(annotations)
    state = alert["state"] + (" (silenced)" if alert["was_silenced"] else "")
    return [
        Cell(html=badge(state, levels.get(alert["state"], ""))),
        Cell(alert["slo"]),
        Cell(alert["severity"]),
        moment_cell(began_ms),
        Cell(formats.age(lasted_s), is_number=True),
        Cell(formats.factor(alert["burn_long"]), is_number=True),
        Cell(annotations.get("summary") or annotations.get("description") or "–", wraps=True),
        Cell(
            annotations.get("top_cause") or "–",
            href=_worst_example(annotations, params),
            wraps=True,
        ),
        Cell(html=_example_links(annotations.get("exemplars", ""), params) or "–"),
    ]


def example_ids(exemplars: str) -> list[str]:
    """Return the request ids of an alert's exemplars: of each line, what precedes the brackets."""
    lines = (line.strip() for line in exemplars.splitlines())
    return [line.rpartition(" (")[0] or line.split()[0] for line in lines if line]


def _worst_example(annotations: Mapping[str, str], params: Mapping[str, str]) -> str:
    """Return the link to the first example, which shows the alert's top cause; "" without one."""
    ids = example_ids(annotations.get("exemplars", ""))
    return page_link("request", {"request_id": ids[0], **params}) if ids else ""


def _example_links(exemplars: str, params: Mapping[str, str]) -> str:
    return ", ".join(
        link(short_id(request_id), page_link("request", {"request_id": request_id, **params}))
        for request_id in example_ids(exemplars)
    )
