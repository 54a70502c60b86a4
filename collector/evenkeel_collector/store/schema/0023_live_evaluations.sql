-- Production requests that a live evaluation drew, one row a request and scorer. `probability` is
-- the known probability with which it was drawn and scored; a row that could not be scored has the
-- label 'unscored' and a reason.

CREATE TABLE IF NOT EXISTS live_evaluations (
    time DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    trace_id String,
    span_id String,
    request_span_id String,
    monitor LowCardinality(String),
    scorer LowCardinality(String),
    stratum String,
    probability Float64,
    score Nullable(Float64),
    label LowCardinality(String),
    reason Nullable(String),
    lag_s Nullable(Float64),
    model LowCardinality(Nullable(String)),
    tenant LowCardinality(Nullable(String)),
    prompt_name LowCardinality(Nullable(String)),
    prompt_version LowCardinality(Nullable(String))
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (monitor, scorer, time)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_live_evaluations TO live_evaluations AS
SELECT
    Timestamp AS time,
    TraceId AS trace_id,
    SpanId AS span_id,
    ParentSpanId AS request_span_id,
    SpanAttributes['evenkeel.live.monitor'] AS monitor,
    SpanAttributes['gen_ai.evaluation.name'] AS scorer,
    SpanAttributes['evenkeel.live.stratum'] AS stratum,
    toFloat64OrZero(SpanAttributes['evenkeel.live.probability']) AS probability,
    toFloat64OrNull(SpanAttributes['gen_ai.evaluation.score.value']) AS score,
    SpanAttributes['gen_ai.evaluation.score.label'] AS label,
    nullIf(SpanAttributes['gen_ai.evaluation.explanation'], '') AS reason,
    toFloat64OrNull(SpanAttributes['evenkeel.live.lag_s']) AS lag_s,
    nullIf(SpanAttributes['gen_ai.request.model'], '') AS model,
    nullIf(SpanAttributes['evenkeel.tenant'], '') AS tenant,
    nullIf(SpanAttributes['evenkeel.prompt.name'], '') AS prompt_name,
    nullIf(SpanAttributes['evenkeel.prompt.version'], '') AS prompt_version
FROM spans
WHERE SpanName = 'evenkeel.evaluation.live';
