"""The first board to open: traffic, errors, latency, queue, caches, budgets."""

from __future__ import annotations

from evenkeel_collector.boards.board_model import Board, BoardRow, Panel, PanelKind, Prom
from evenkeel_collector.boards.promql import MODEL, MODELS, SERVERS, Fleet

_FLEET = Fleet(SERVERS)
REQUESTS = "evenkeel_runtime_requests_total"
TOKENS = "evenkeel_engine_tokens_total"
_LEDGER = "evenkeel_runtime_ledger_seconds_total"
_LIVE, _ALL = 'state="live"', 'state="total"'
_BLOCKS = "evenkeel_engine_kv_blocks"
KV_USE = f"{_FLEET.total(_BLOCKS, _LIVE)} / {_FLEET.total(_BLOCKS, _ALL)}"
_FAILED = 'status=~"error|shed"'
ERROR_RATIO = f"({_FLEET.rate(REQUESTS, _FAILED)} or vector(0)) / ({_FLEET.rate(REQUESTS)} > 0)"
ACCEPTANCE = (
    f"{_FLEET.rate('evenkeel_speculation_accepted_tokens_total')}"
    f" / ({_FLEET.rate('evenkeel_speculation_drafted_tokens_total')} > 0)"
)
HIT_RATIO = (
    f"{_FLEET.rate('vllm:prefix_cache_hits_total', MODEL)}"
    f" / ({_FLEET.rate('vllm:prefix_cache_queries_total', MODEL)} > 0)"
)
BUDGET_LEFT = "min(evenkeel_slo_budget_left_ratio)"

_NOW = BoardRow(
    "Now",
    (
        Panel(
            "Requests",
            "Requests that ended, per second, of all statuses.",
            (Prom(_FLEET.rate(REQUESTS)),),
            "reqps", PanelKind.FIGURE, 3,
        ),
        Panel(
            "Errors",
            "Share of requests that failed or were refused by control.",
            (Prom(ERROR_RATIO),),
            "percentunit", PanelKind.FIGURE, 3, 0.01, 0.05,
        ),
        Panel(
            "TTFT p95",
            "95th percentile from arrival to the first token, queue included.",
            (Prom(_FLEET.quantile("0.95", "evenkeel_runtime_ttft_seconds")),),
            "s", PanelKind.FIGURE, 3,
        ),
        Panel(
            "Waiting",
            "Requests in the engines' queues.",
            (Prom(_FLEET.total("evenkeel_engine_requests", 'state="waiting"')),),
            "short", PanelKind.FIGURE, 3, 1, 10,
        ),
        Panel(
            "KV cache in use",
            "KV blocks held by requests. Near 100% requests wait for blocks, or are preempted.",
            (Prom(KV_USE),),
            "percentunit", PanelKind.FIGURE, 3, 0.8, 0.95,
        ),
        Panel(
            "Prefix cache hits",
            "Share of prompt tokens found in the prefix cache.",
            (Prom(HIT_RATIO),),
            "percentunit", PanelKind.FIGURE, 3,
        ),
        Panel(
            "Draft acceptance",
            "Share of drafted tokens that the model accepted.",
            (Prom(ACCEPTANCE),),
            "percentunit", PanelKind.FIGURE, 3,
        ),
        Panel(
            "Least budget left",
            "Error budget left of the SLO that has the least; below 0 it is overspent.",
            (Prom(BUDGET_LEFT),),
            "percentunit", PanelKind.FIGURE, 3, 0.5, 0.1,
        ),
    ),
)  # fmt: skip

_TRAFFIC = BoardRow(
    "Traffic",
    (
        Panel(
            "Requests by status",
            "`shed` was refused by control, `aborted` was left by its client.",
            (Prom(_FLEET.rate(REQUESTS, by="status"), "{{status}}"),),
            "reqps",
            PanelKind.STACKED,
        ),
        Panel(
            "Tokens",
            "Prompt tokens computed (prefill), prompt tokens found in the cache, tokens generated.",
            (
                Prom(_FLEET.rate(TOKENS, 'kind="prefill"'), "prefill"),
                Prom(_FLEET.rate(TOKENS, 'kind="cached"'), "cached"),
                Prom(_FLEET.rate("vllm:generation_tokens_total", MODEL), "generated"),
            ),
            "cps",
        ),
        Panel(
            "Running and waiting",
            "A queue that grows while the number of running requests stays level is overload.",
            (Prom(_FLEET.total("evenkeel_engine_requests", by="state"), "{{state}}"),),
        ),
    ),
)

_LATENCY = BoardRow(
    "Latency",
    (
        Panel(
            "Time to first token",
            "From arrival to the first token, queue included.",
            _FLEET.quantiles("evenkeel_runtime_ttft_seconds"),
            "s",
        ),
        Panel(
            "Gap between tokens (ITL)",
            "vLLM's histogram of the gaps after the first token.",
            _FLEET.quantiles("vllm:inter_token_latency_seconds", MODEL),
            "s",
        ),
        Panel(
            "End to end",
            "From arrival to the end of the response.",
            _FLEET.quantiles("evenkeel_runtime_e2e_seconds"),
            "s",
        ),
    ),
)

_CAUSES = BoardRow(
    "Where the time goes",
    (
        Panel(
            "Time to first token by cause",
            "Seconds spent waiting for a first token, per second. The largest cause is the one to"
            " work on: `queue.*` is the wait, `prefill.own` the prompt's own work,"
            " `prefill.others` that of other requests.",
            (Prom(_FLEET.rate(_LEDGER, 'phase="ttft"', by="cause"),
                  "{{cause}}"),),
            "s", PanelKind.STACKED, 12,
        ),
        Panel(
            "Decoding by cause",
            "Seconds between the first and the last token, per second.",
            (Prom(_FLEET.rate(_LEDGER, 'phase="decode"', by="cause"),
                  "{{cause}}"),),
            "s", PanelKind.STACKED, 12,
        ),
    ),
)  # fmt: skip

_CONTROL = BoardRow(
    "Control",
    (
        Panel(
            "Burn rate seen by control",
            "Highest burn rate over all classes; control acts above its limit.",
            (Prom(_FLEET.highest("evenkeel_control_burn_rate", by="instance"), "{{instance}}"),),
        ),
        Panel(
            "Ladder steps in force",
            "0: control holds nobody back.",
            (Prom(_FLEET.highest("evenkeel_control_level", by="instance"), "{{instance}}"),),
        ),
        Panel(
            "Refused by control",
            "Requests refused, and those that a dry run would have refused.",
            (
                Prom(_FLEET.rate("evenkeel_control_refused_total", by="class"), "{{class}}"),
                Prom(
                    _FLEET.rate("evenkeel_control_would_refuse_total", by="class"),
                    "{{class}} (dry run)",
                ),
            ),
            "reqps",
        ),
    ),
)

OVERVIEW = Board(
    "evenkeel-overview",
    "evenkeel: overview",
    "For the engineer on call: is it healthy, and if not, which board explains it?",
    "",
    (SERVERS, MODELS),
    (_NOW, _TRAFFIC, _LATENCY, _CAUSES, _CONTROL),
)
