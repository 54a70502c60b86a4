"""Requests in ClickHouse, by tenant, model and route, down to the single request."""

from __future__ import annotations

from pathlib import Path

from evenkeel_collector.boards.board_model import (
    Board,
    BoardRow,
    BoardSql,
    Columns,
    Panel,
    PanelKind,
    Variable,
)

_HERE = Path(__file__).parent
_COUNTED = (
    ("requests", "short"),
    ("error_ratio", "percentunit"),
    ("ttft_p95_s", "s"),
    ("e2e_p95_s", "s"),
    ("output_total", "short"),
    ("wasted_total", "short"),
    ("cached_ratio", "percentunit"),
)

TENANT = Variable("tenant", _HERE / "board_values.sql", "Tenants with requests in the range")
MODEL = Variable("model", _HERE / "board_values.sql", "Requested models")
ROUTE = Variable("route", _HERE / "board_values.sql", "Routes, as callers name them")

_TRAFFIC = BoardRow(
    "Traffic",
    (
        Panel(
            "Requests by status",
            "`shed` was refused by control, `aborted` was left by its client.",
            (BoardSql(_HERE / "board_traffic.sql"),),
            "reqps",
            PanelKind.STACKED,
        ),
        Panel(
            "Requests by tenant",
            "The ten busiest tenants.",
            (BoardSql(_HERE / "board_tenant_traffic.sql", "tenant"),),
            "reqps",
            PanelKind.STACKED,
        ),
        Panel(
            "Tokens",
            "Prompt tokens, those of them that were cached, tokens generated, and tokens generated"
            " after the client had left.",
            (BoardSql(_HERE / "board_tokens.sql"),),
            "cps",
        ),
    ),
)

_LATENCY = BoardRow(
    "Latency",
    (
        Panel(
            "Time to first token",
            "Quantiles of arrival to first token, queue included.",
            (BoardSql(_HERE / "board_quantiles.sql", column="ttft_s"),),
            "s",
        ),
        Panel(
            "Gap between tokens (ITL p99)",
            "Quantiles over requests of each request's 99th percentile.",
            (BoardSql(_HERE / "board_quantiles.sql", column="itl_p99_s"),),
            "s",
        ),
        Panel(
            "End to end",
            "Quantiles of arrival to end.",
            (BoardSql(_HERE / "board_quantiles.sql", column="e2e_s"),),
            "s",
        ),
        Panel(
            "Where the time goes",
            "Mean seconds per request by cause, from the ledgers.",
            (BoardSql(_HERE / "board_causes.sql", "cause"),),
            "s",
            PanelKind.STACKED,
        ),
        Panel(
            "Queue, prefill, decode",
            "Mean seconds of each phase, of requests that got a token.",
            (BoardSql(_HERE / "board_phases.sql"),),
            "s",
            PanelKind.STACKED,
        ),
        Panel(
            "Cached and accepted",
            "Share of prompt tokens found in the prefix cache; share of drafted tokens accepted.",
            (BoardSql(_HERE / "board_savings.sql"),),
            "percentunit",
        ),
    ),
)

_WHO = BoardRow(
    "Who",
    (
        Panel(
            "Tenants",
            "Who sends the load, who waits, who wastes tokens.",
            (BoardSql(_HERE / "board_tenant_table.sql"),),
            kind=PanelKind.TABLE,
            width=12,
            columns=Columns(_COUNTED, (("tenant", "?tenant={tenant}"),)),
        ),
        Panel(
            "Models and routes",
            "The same, by model and route.",
            (BoardSql(_HERE / "board_route_table.sql"),),
            kind=PanelKind.TABLE,
            width=12,
            columns=Columns(_COUNTED),
        ),
        Panel(
            "Slowest requests",
            "By time to first token; the ID leads to the request's timeline in evenkeel, with every"
            " cause of its wait.",
            (BoardSql(_HERE / "board_slowest.sql"),),
            kind=PanelKind.TABLE,
            width=24,
            columns=Columns(
                (("ttft_s", "s"), ("e2e_s", "s"), ("queue_s", "s"), ("largest_cause_s", "s")),
                (("request_id", "request?trace_id={trace_id}"),),
                ("trace_id",),
            ),
        ),
    ),
)

_ENGINES = BoardRow(
    "Engines",
    (
        Panel(
            "Batch size and queue",
            "Weighted by time, from the step records.",
            (BoardSql(_HERE / "board_batches.sql"),),
        ),
        Panel(
            "What the queue waited for",
            "Share of time in which requests waited, by reason.",
            (BoardSql(_HERE / "board_held.sql", "held_by"),),
            "percentunit",
            PanelKind.STACKED,
        ),
        Panel(
            "Response cache",
            "Requests by what the response cache did.",
            (BoardSql(_HERE / "board_response_cache.sql", "outcome"),),
            "reqps",
            PanelKind.STACKED,
        ),
    ),
)

REQUESTS = Board(
    "evenkeel-requests",
    "evenkeel: requests",
    "For the engineer who asks who is affected: requests by tenant, model and route.",
    "latency",
    (TENANT, MODEL, ROUTE),
    (_TRAFFIC, _LATENCY, _WHO, _ENGINES),
)
