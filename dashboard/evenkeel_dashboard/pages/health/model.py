"""Computes the health page's verdict and headline tiles from plain rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenkeel_dashboard.draw import wording
from evenkeel_dashboard.draw.tiles import StateSummary, Tile
from evenkeel_dashboard.model.slo_tiles import closest_burn, slo_state

Row = Mapping[str, Any]

# A phase is named as the cause only if it accounts for this share of the growth of TTFT.
_MAIN_CAUSE_SHARE = 0.5
# TTFT growth below this ratio, or below this many seconds, is not reported.
_NOTABLE_GROWTH_RATIO = 1.25
_NOTABLE_GROWTH_S = 0.02


_TILES = (
    ("Requests", "requests_per_s", wording.rate, "requests that arrived, whatever their outcome"),
    ("Output tokens", "output_tokens_per_s", wording.rate, "generated for requests in this range"),
    ("TTFT p50", "ttft_p50_s", wording.seconds, "first token − arrival, queue included"),
    ("TTFT p95", "ttft_p95_s", wording.seconds, "first token − arrival, queue included"),
    ("TTFT p99", "ttft_p99_s", wording.seconds, "first token − arrival, queue included"),
    ("ITL p95", "itl_p99_p95_s", wording.seconds, "p95 across requests of each request's p99 gap"),
    ("TPOT p95", "tpot_p95_s", wording.seconds, "(last − first token) / (output tokens − 1)"),
    ("Errors", "error_ratio", wording.percent, "requests that failed / all requests"),
    ("Aborts", "aborted_ratio", wording.percent, "requests abandoned by the client / all requests"),
    ("Shed", "shed_ratio", wording.percent, "requests refused under load / all requests"),
    (
        "Cached tokens",
        "cached_token_ratio",
        wording.percent,
        "input tokens found in the prefix cache",
    ),
    ("Acceptance", "acceptance_rate", wording.percent, "draft tokens accepted / drafted"),
)


def headline_tiles(summary: Row, previous: Row) -> list[Tile]:
    """Return the headline numbers with their change from the previous range."""
    return [
        Tile(
            label=label,
            value=words(summary[column]),
            change=wording.change(summary[column], previous[column]) or "",
            meaning=meaning,
        )
        for label, column, words, meaning in _TILES
    ]


def verdict(slos: Sequence[Row], summary: Row, previous: Row) -> StateSummary:
    """Return whether the service meets its SLOs, and where its time goes."""
    reason = _reason(summary, previous)
    firing = [row for row in slos if row["state"] == "firing"]
    if firing:
        names = ", ".join(row["slo"] for row in firing)
        burns = [closest_burn(row)[0] for row in firing]
        worst = max((burn for burn in burns if burn is not None), default=None)
        speed = "" if worst is None else f" {wording.factor(worst)} too fast"
        verb = "is burning its" if len(firing) == 1 else "are burning their"
        up_to = " up to" if speed and len(firing) > 1 else ""
        return StateSummary("bad", f"{names} {verb} error budget{up_to}{speed}", reason)
    levels = [slo_state(row)[0] for row in slos]
    if "warning" in levels:
        names = ", ".join(
            f"{row['slo']} ({slo_state(row)[1]})" for row in slos if slo_state(row)[0] == "warning"
        )
        return StateSummary("warning", f"At risk: {names}", reason)
    if not slos:
        return StateSummary("unknown", "No SLOs are configured, so health cannot be judged", reason)
    num_met = levels.count("good")
    if num_met == 0:
        return StateSummary("unknown", "No data to judge the SLOs", reason)
    return StateSummary("good", f"Healthy: {num_met} of {len(slos)} SLOs met, none firing", reason)


def _reason(summary: Row, previous: Row) -> str:
    queue_s, prefill_s = summary["queue_mean_s"], summary["prefill_mean_s"]
    if summary["ttft_p95_s"] is None or queue_s is None or prefill_s is None:
        return ""
    first_s = queue_s + prefill_s
    share = queue_s / first_s if first_s > 0 else 0.0
    largest, largest_share = ("queue", share) if share >= 0.5 else ("prefill", 1 - share)
    text = (
        f"In this range TTFT p95 was {wording.seconds(summary['ttft_p95_s'])}; the average first "
        f"token took {wording.seconds(first_s)}, {wording.percent(largest_share)} of it {largest}."
    )
    return f"{text} {_growth(summary, previous)}".strip()


def _growth(summary: Row, previous: Row) -> str:
    """Return the phase that delayed first tokens compared with the previous range, if any."""
    phases = {"queue": "queue_mean_s", "prefill": "prefill_mean_s"}
    if any(previous[column] is None for column in phases.values()):
        return ""
    growth_s = {name: summary[column] - previous[column] for name, column in phases.items()}
    before_s = sum(previous[column] for column in phases.values())
    total_s = sum(growth_s.values())
    if total_s < _NOTABLE_GROWTH_S or total_s < (_NOTABLE_GROWTH_RATIO - 1) * before_s:
        return ""
    cause, cause_s = max(growth_s.items(), key=lambda item: item[1])
    if cause_s < _MAIN_CAUSE_SHARE * total_s:
        return ""
    return (
        f"It was {wording.seconds(before_s)} in the previous range: "
        f"{cause} grew by {wording.seconds(cause_s)}."
    )
