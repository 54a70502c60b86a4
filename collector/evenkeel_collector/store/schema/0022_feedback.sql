-- What people said of an answer: one row a judgement, by the trace that it belongs to.
-- What was not said is NULL.

CREATE TABLE IF NOT EXISTS feedback (
    time DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    trace_id String,
    span_id String,
    request_span_id String,
    score Nullable(Float64),
    label LowCardinality(Nullable(String)),
    comment Nullable(String),
    corrected Nullable(String),
    author Nullable(String),
    tenant LowCardinality(Nullable(String))
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (trace_id, time)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_feedback TO feedback AS
SELECT
    Timestamp AS time,
    TraceId AS trace_id,
    SpanId AS span_id,
    ParentSpanId AS request_span_id,
    toFloat64OrNull(SpanAttributes['gen_ai.evaluation.score.value']) AS score,
    nullIf(SpanAttributes['gen_ai.evaluation.score.label'], '') AS label,
    nullIf(SpanAttributes['gen_ai.evaluation.explanation'], '') AS comment,
    nullIf(SpanAttributes['evenkeel.feedback.corrected'], '') AS corrected,
    nullIf(SpanAttributes['evenkeel.feedback.author'], '') AS author,
    nullIf(SpanAttributes['evenkeel.tenant'], '') AS tenant
FROM spans
WHERE SpanName = 'evenkeel.feedback';
