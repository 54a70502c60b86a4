-- What was judged of answers: by evaluations, by people (07_feedback.sql), and in production.
-- What does not exist is NULL (arrays: empty), never 0. Durations are seconds.

-- Reached by few spans, as in 03_requests_of_others.sql.
CREATE TABLE IF NOT EXISTS judgement_spans (
    Timestamp DateTime64(9),
    TraceId String,
    SpanId String,
    ParentSpanId String,
    SpanName LowCardinality(String),
    ServiceName LowCardinality(String),
    SpanAttributes Map(LowCardinality(String), String)
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_judgement_spans TO judgement_spans AS
SELECT Timestamp, TraceId, SpanId, ParentSpanId, SpanName, ServiceName, SpanAttributes
FROM spans
WHERE SpanName IN ('evenkeel.evaluation', 'evenkeel.evaluation.run', 'evenkeel.evaluation.live',
    'evenkeel.feedback');

-- One row per answer and scorer (kind 'answer'), one per gate of a run (kind 'gate').
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
    attributes Map(LowCardinality(String), String),
    refused_numbers Map(LowCardinality(String), LowCardinality(String))
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (kind, time)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_eval_results TO eval_results AS
WITH
    (text -> multiIf(isNull(toFloat64OrNull(text)), 'not_a_number',
        isFinite(toFloat64OrZero(text)), 'out_of_range', 'not_finite')) AS reason_of,
    ['score', 'output_tokens', 'client_ttft_s', 'client_e2e_s', 'estimate', 'lower', 'upper', 'num_pairs']
        AS names,
    [SpanAttributes['gen_ai.evaluation.score.value'], SpanAttributes['evenkeel.eval.output_tokens'],
        SpanAttributes['evenkeel.eval.client_ttft_s'], SpanAttributes['evenkeel.eval.client_e2e_s'],
        SpanAttributes['evenkeel.eval.estimate'], SpanAttributes['evenkeel.eval.lower'],
        SpanAttributes['evenkeel.eval.upper'], SpanAttributes['evenkeel.eval.num_pairs']] AS texts,
    arrayMap((text, low, high, is_whole) -> if(toFloat64OrNull(text) BETWEEN low AND high
            AND toFloat64OrNull(text) = if(is_whole, floor(toFloat64OrNull(text)), toFloat64OrNull(text)),
            toFloat64OrNull(text), NULL),
        texts,
        [-1000000000., 0., 0., 0., -1000000000., -1000000000., -1000000000., 0.],
        [1000000000., 100000000., 1000000., 1000000., 1000000000., 1000000000., 1000000000., 4294967295.],
        [0, 1, 0, 0, 0, 0, 0, 1]) AS numbers,
    arrayMap((name, text) -> (name, reason_of(text)),
        arrayFilter((name, text, number) -> text != '' AND isNull(number), names, texts, numbers),
        arrayFilter((text, number) -> text != '' AND isNull(number), texts, numbers)) AS refused
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
    numbers[1] AS score,
    nullIf(SpanAttributes['gen_ai.evaluation.score.label'], '') AS label,
    nullIf(SpanAttributes['gen_ai.evaluation.explanation'], '') AS explanation,
    nullIf(SpanAttributes['error.type'], '') AS error_type,
    accurateCastOrNull(numbers[2], 'UInt32') AS output_tokens,
    numbers[3] AS client_ttft_s,
    numbers[4] AS client_e2e_s,
    nullIf(SpanAttributes['evenkeel.eval.gate'], '') AS gate,
    nullIf(SpanAttributes['evenkeel.eval.slice'], '') AS slice,
    nullIf(SpanAttributes['evenkeel.eval.verdict'], '') AS verdict,
    numbers[5] AS estimate,
    numbers[6] AS lower,
    numbers[7] AS upper,
    accurateCastOrNull(numbers[8], 'UInt32') AS num_pairs,
    SpanAttributes AS attributes,
    CAST(refused, 'Map(LowCardinality(String), LowCardinality(String))') AS refused_numbers
FROM judgement_spans
WHERE SpanName IN ('evenkeel.evaluation', 'evenkeel.evaluation.run');

-- Production requests that a live evaluation drew, one row per request and scorer. `probability` is
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
    prompt_version LowCardinality(Nullable(String)),
    refused_numbers Map(LowCardinality(String), LowCardinality(String))
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (monitor, scorer, time)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_live_evaluations TO live_evaluations AS
WITH
    (text -> multiIf(isNull(toFloat64OrNull(text)), 'not_a_number',
        isFinite(toFloat64OrZero(text)), 'out_of_range', 'not_finite')) AS reason_of,
    ['probability', 'score', 'lag_s'] AS names,
    [SpanAttributes['evenkeel.live.probability'], SpanAttributes['gen_ai.evaluation.score.value'],
        SpanAttributes['evenkeel.live.lag_s']] AS texts,
    arrayMap((text, low, high, is_whole) -> if(toFloat64OrNull(text) BETWEEN low AND high
            AND toFloat64OrNull(text) = if(is_whole, floor(toFloat64OrNull(text)), toFloat64OrNull(text)),
            toFloat64OrNull(text), NULL),
        texts,
        [1e-06, 0., 0.],
        [1., 1., 1000000.],
        [0, 0, 0]) AS numbers,
    arrayMap((name, text) -> (name, reason_of(text)),
        arrayFilter((name, text, number) -> text != '' AND isNull(number), names, texts, numbers),
        arrayFilter((text, number) -> text != '' AND isNull(number), texts, numbers)) AS refused
SELECT
    Timestamp AS time,
    TraceId AS trace_id,
    SpanId AS span_id,
    ParentSpanId AS request_span_id,
    SpanAttributes['evenkeel.live.monitor'] AS monitor,
    SpanAttributes['gen_ai.evaluation.name'] AS scorer,
    SpanAttributes['evenkeel.live.stratum'] AS stratum,
    coalesce(numbers[1], 0) AS probability,
    numbers[2] AS score,
    SpanAttributes['gen_ai.evaluation.score.label'] AS label,
    nullIf(SpanAttributes['gen_ai.evaluation.explanation'], '') AS reason,
    numbers[3] AS lag_s,
    nullIf(SpanAttributes['gen_ai.request.model'], '') AS model,
    nullIf(SpanAttributes['evenkeel.tenant'], '') AS tenant,
    nullIf(SpanAttributes['evenkeel.prompt.name'], '') AS prompt_name,
    nullIf(SpanAttributes['evenkeel.prompt.version'], '') AS prompt_version,
    CAST(refused, 'Map(LowCardinality(String), LowCardinality(String))') AS refused_numbers
FROM judgement_spans
WHERE SpanName = 'evenkeel.evaluation.live';
