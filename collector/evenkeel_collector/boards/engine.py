"""The engines: batches, steps, KV blocks, preemptions, and what the runtime's telemetry lost."""

from __future__ import annotations

from evenkeel_collector.boards.board_model import Board, BoardRow, Panel, PanelKind, Prom
from evenkeel_collector.boards.overview import KV_USE, TOKENS
from evenkeel_collector.boards.promql import MODEL, MODELS, SERVERS, Fleet

_FLEET = Fleet(SERVERS)
_WHICH = "instance, engine"
_STEP = "evenkeel_engine_step_duration_seconds"

_BATCHES = BoardRow(
    "Batches and steps",
    (
        Panel(
            "Batch size",
            "Requests computed in the last step. Low under load: look at what holds the queue.",
            (Prom(_FLEET.highest("batch_size", by=_WHICH), "{{instance}} {{engine}}"),),
        ),
        Panel(
            "Step duration",
            "Time of one engine step; every running request waits this long for its next token.",
            _FLEET.quantiles(_STEP),
            "s",
        ),
        Panel(
            "Steps",
            "Engine steps per second.",
            (Prom(_FLEET.rate(f"{_STEP}_count", by=_WHICH), "{{instance}} {{engine}}"),),
            "ops",
        ),
        Panel(
            "Tokens by use",
            "What the steps computed: prompts, answers, drafts.",
            (Prom(_FLEET.rate(TOKENS, by="kind"), "{{kind}}"),),
            "cps",
        ),
        Panel(
            "Tokens per step",
            "Tokens in one iteration, from vLLM; the token budget is its upper bound.",
            _FLEET.quantiles("vllm:iteration_tokens_total", MODEL),
        ),
        Panel(
            "Mean step of the last 1,000",
            "Computed by the engine itself, without Prometheus' resolution.",
            (
                Prom(
                    _FLEET.highest("batch_completion_time_avg", by=_WHICH),
                    "{{instance}} {{engine}}",
                ),
            ),
            "s",
        ),
    ),
)

_QUEUE = BoardRow(
    "Queue and KV cache",
    (
        Panel(
            "Requests in the scheduler",
            "Running and waiting, by server.",
            (Prom(_FLEET.total("evenkeel_engine_requests", by="instance, state"),
                  "{{instance}} {{state}}"),),
        ),
        Panel(
            "Waiting, by reason",
            "`capacity`: seats, tokens or KV blocks are taken; `deferred`: a grammar, remote KV,"
            " or another condition of the request itself.",
            (Prom(_FLEET.total("vllm:num_requests_waiting_by_reason", MODEL, by="reason"),
                  "{{reason}}"),),
            "short", PanelKind.STACKED,
        ),
        Panel(
            "Time in the queue",
            "From arrival to the first step, from vLLM.",
            _FLEET.quantiles("vllm:request_queue_time_seconds", MODEL),
            "s",
        ),
        Panel(
            "KV blocks",
            "Live blocks are held by requests; resident ones can be reused by a later prompt.",
            (Prom(_FLEET.total("evenkeel_engine_kv_blocks", by="state"), "{{state}}"),),
        ),
        Panel(
            "KV cache in use",
            "Share of the blocks held by requests. Blocks that stay live without running requests"
            " are a leak.",
            (Prom(KV_USE, "live"),),
            "percentunit",
        ),
        Panel(
            "Preemptions",
            "Requests thrown out of the batch for lack of blocks; their work is done again.",
            (Prom(_FLEET.rate("evenkeel_engine_preemptions_total", by=_WHICH),
                  "{{instance}} {{engine}}"),),
            "ops",
        ),
    ),
)  # fmt: skip

_PHASES = BoardRow(
    "Phases of a request",
    (
        Panel(
            "Prefill",
            "First step to first token, from vLLM.",
            _FLEET.quantiles("vllm:request_prefill_time_seconds", MODEL),
            "s",
        ),
        Panel(
            "Decoding",
            "First to last token, from vLLM.",
            _FLEET.quantiles("vllm:request_decode_time_seconds", MODEL),
            "s",
        ),
        Panel(
            "Prompt length",
            "Tokens of prompts; a jump here explains a jump in TTFT.",
            _FLEET.quantiles("vllm:request_prompt_tokens", MODEL),
        ),
    ),
)

_TELEMETRY = BoardRow(
    "Telemetry of the runtime",
    (
        Panel(
            "Spans",
            "Exported, and lost by reason. Anything lost is missing from every page.",
            (
                Prom(_FLEET.rate("evenkeel_runtime_spans_exported_total"), "exported"),
                Prom(_FLEET.rate("evenkeel_runtime_spans_dropped_total", by="reason"),
                     "{{reason}}"),
            ),
            "ops",
        ),
        Panel(
            "Spans queued",
            "Grows while the collector does not answer; when full, spans are dropped.",
            (Prom(_FLEET.total("evenkeel_runtime_spans_queued", by="instance"), "{{instance}}"),),
        ),
        Panel(
            "Requests without a ledger",
            "Requests whose time cannot be attributed because engine records are missing, and steps"
            " whose records were lost.",
            (
                Prom(_FLEET.rate("evenkeel_runtime_ledgers_missing_total"), "requests"),
                Prom(_FLEET.rate("evenkeel_runtime_steps_lost_total"), "steps"),
            ),
            "ops",
        ),
        Panel(
            "Failures",
            "Errors inside the telemetry, failed exports, and restarts of the exporter; each should"
            " be 0.",
            (
                Prom(_FLEET.rate("evenkeel_runtime_internal_errors_total"), "internal errors"),
                Prom(_FLEET.rate("evenkeel_runtime_export_errors_total"), "failed exports"),
                Prom(_FLEET.rate("evenkeel_runtime_exporter_restarts_total"), "exporter restarts"),
            ),
            "ops",
        ),
        Panel(
            "Error of the step-cost model",
            "Mean relative error of the prices that ledgers are computed with.",
            (Prom(_FLEET.highest("evenkeel_runtime_cost_model_error_ratio", by=_WHICH),
                  "{{instance}} {{engine}}"),),
            "percentunit",
        ),
        Panel(
            "Mean seconds per step",
            "From the histogram; compare with the quantiles above for stragglers.",
            (Prom(_FLEET.mean(f"{_STEP}_sum", f"{_STEP}_count"), "mean"),),
            "s",
        ),
    ),
)  # fmt: skip

ENGINE = Board(
    "evenkeel-engine",
    "evenkeel: engine",
    "For the engineer who tunes vLLM: what the batch does, what the queue waits for.",
    "engine",
    (SERVERS, MODELS),
    (_BATCHES, _QUEUE, _PHASES, _TELEMETRY),
)
