-- What people said of an answer: one row per judgement, by the trace that it belongs to.
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
    tenant LowCardinality(Nullable(String)),
    refused_numbers Map(LowCardinality(String), LowCardinality(String))
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (trace_id, time)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_feedback TO feedback AS
WITH
    (text -> multiIf(isNull(toFloat64OrNull(text)), 'not_a_number',
        isFinite(toFloat64OrZero(text)), 'out_of_range', 'not_finite')) AS reason_of,
    ['score'] AS names,
    [SpanAttributes['gen_ai.evaluation.score.value']] AS texts,
    arrayMap((text, low, high, is_whole) -> if(toFloat64OrNull(text) BETWEEN low AND high
            AND toFloat64OrNull(text) = if(is_whole, floor(toFloat64OrNull(text)), toFloat64OrNull(text)),
            toFloat64OrNull(text), NULL),
        texts,
        [0.],
        [1.],
        [0]) AS numbers,
    arrayMap((name, text) -> (name, reason_of(text)),
        arrayFilter((name, text, number) -> text != '' AND isNull(number), names, texts, numbers),
        arrayFilter((text, number) -> text != '' AND isNull(number), texts, numbers)) AS refused
SELECT
    Timestamp AS time,
    TraceId AS trace_id,
    SpanId AS span_id,
    ParentSpanId AS request_span_id,
    numbers[1] AS score,
    nullIf(SpanAttributes['gen_ai.evaluation.score.label'], '') AS label,
    nullIf(SpanAttributes['gen_ai.evaluation.explanation'], '') AS comment,
    nullIf(SpanAttributes['evenkeel.feedback.corrected'], '') AS corrected,
    nullIf(SpanAttributes['evenkeel.feedback.author'], '') AS author,
    nullIf(SpanAttributes['evenkeel.tenant'], '') AS tenant,
    CAST(refused, 'Map(LowCardinality(String), LowCardinality(String))') AS refused_numbers
FROM judgement_spans
WHERE SpanName = 'evenkeel.feedback';
