-- Evaluations: one row an answer and scorer (kind 'answer'), one a gate of a run (kind 'gate').
-- What does not exist is NULL (arrays: empty), never 0. Durations are seconds.

CREATE TABLE IF NOT EXISTS eval_results (
    time DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    trace_id String,
    span_id String,
    parent_span_id String,
    kind LowCardinality(String),
    service LowCardinality(String),
    run_id LowCardinality(Nullable(String)),
    dataset LowCardinality(Nullable(String)),
    side LowCardinality(Nullable(String)),
    item_id Nullable(String),
    pair Nullable(String),
    tags Array(String),
    model LowCardinality(Nullable(String)),
    prompt_name LowCardinality(Nullable(String)),
    prompt_version LowCardinality(Nullable(String)),
    name LowCardinality(Nullable(String)),
    score Nullable(Float64),
    label LowCardinality(Nullable(String)),
    explanation Nullable(String),
    error_type LowCardinality(Nullable(String)),
    output_tokens Nullable(UInt32),
    client_ttft_s Nullable(Float64),
    client_e2e_s Nullable(Float64),
    gate LowCardinality(Nullable(String)),
    slice LowCardinality(Nullable(String)),
    verdict LowCardinality(Nullable(String)),
    estimate Nullable(Float64),
    lower Nullable(Float64),
    upper Nullable(Float64),
    num_pairs Nullable(UInt32),
    attributes Map(LowCardinality(String), String)
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (kind, time)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_eval_results TO eval_results AS
SELECT
    Timestamp AS time,
    TraceId AS trace_id,
    SpanId AS span_id,
    ParentSpanId AS parent_span_id,
    if(SpanName = 'evenkeel.evaluation', 'answer', 'gate') AS kind,
    ServiceName AS service,
    nullIf(SpanAttributes['evenkeel.eval.run_id'], '') AS run_id,
    nullIf(SpanAttributes['evenkeel.eval.dataset'], '') AS dataset,
    nullIf(SpanAttributes['evenkeel.eval.side'], '') AS side,
    nullIf(SpanAttributes['evenkeel.eval.item_id'], '') AS item_id,
    nullIf(SpanAttributes['evenkeel.eval.pair'], '') AS pair,
    JSONExtract(SpanAttributes['evenkeel.eval.tags'], 'Array(String)') AS tags,
    nullIf(SpanAttributes['gen_ai.request.model'], '') AS model,
    nullIf(SpanAttributes['evenkeel.prompt.name'], '') AS prompt_name,
    nullIf(SpanAttributes['evenkeel.prompt.version'], '') AS prompt_version,
    nullIf(SpanAttributes['gen_ai.evaluation.name'], '') AS name,
    toFloat64OrNull(SpanAttributes['gen_ai.evaluation.score.value']) AS score,
    nullIf(SpanAttributes['gen_ai.evaluation.score.label'], '') AS label,
    nullIf(SpanAttributes['gen_ai.evaluation.explanation'], '') AS explanation,
    nullIf(SpanAttributes['error.type'], '') AS error_type,
    toUInt32OrNull(SpanAttributes['evenkeel.eval.output_tokens']) AS output_tokens,
    toFloat64OrNull(SpanAttributes['evenkeel.eval.client_ttft_s']) AS client_ttft_s,
    toFloat64OrNull(SpanAttributes['evenkeel.eval.client_e2e_s']) AS client_e2e_s,
    nullIf(SpanAttributes['evenkeel.eval.gate'], '') AS gate,
    nullIf(SpanAttributes['evenkeel.eval.slice'], '') AS slice,
    nullIf(SpanAttributes['evenkeel.eval.verdict'], '') AS verdict,
    toFloat64OrNull(SpanAttributes['evenkeel.eval.estimate']) AS estimate,
    toFloat64OrNull(SpanAttributes['evenkeel.eval.lower']) AS lower,
    toFloat64OrNull(SpanAttributes['evenkeel.eval.upper']) AS upper,
    toUInt32OrNull(SpanAttributes['evenkeel.eval.num_pairs']) AS num_pairs,
    SpanAttributes AS attributes
FROM spans
WHERE SpanName IN ('evenkeel.evaluation', 'evenkeel.evaluation.run');
