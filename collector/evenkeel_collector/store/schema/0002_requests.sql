-- One typed row an LLM request, and its rollups by minute and by hour.
-- What does not exist is NULL (arrays and maps: empty), never 0. Durations are seconds.

CREATE TABLE IF NOT EXISTS requests (
    time DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    trace_id String,
    span_id String,
    service LowCardinality(String),
    operation LowCardinality(Nullable(String)),
    request_id String,
    tenant LowCardinality(Nullable(String)),
    session_id Nullable(String),
    model LowCardinality(String),
    slo_class LowCardinality(Nullable(String)),
    route LowCardinality(Nullable(String)),
    prompt_name LowCardinality(Nullable(String)),
    prompt_version LowCardinality(Nullable(String)),
    status LowCardinality(String),
    finish_reason LowCardinality(Nullable(String)),
    error_type LowCardinality(Nullable(String)),
    max_tokens Nullable(UInt32),
    temperature Nullable(Float64),
    input_tokens Nullable(UInt32),
    output_tokens Nullable(UInt32),
    cached_tokens Nullable(UInt32),
    wasted_tokens Nullable(UInt32),
    queue_s Nullable(Float64),
    prefill_s Nullable(Float64),
    decode_s Nullable(Float64),
    ttft_s Nullable(Float64),
    tpot_s Nullable(Float64),
    itl_p50_s Nullable(Float64),
    itl_p99_s Nullable(Float64),
    stall_s Nullable(Float64),
    e2e_s Nullable(Float64),
    drafted_tokens Nullable(UInt32),
    accepted_tokens Nullable(UInt32),
    drafted_by_position Array(UInt32),
    accepted_by_position Array(UInt32),
    response_cache LowCardinality(Nullable(String)),
    emission_time_s Array(Float64),
    emission_tokens Array(UInt32),
    ledger Map(LowCardinality(String), Float64),
    sample_weight Float64,
    is_time_clamped Bool,
    INDEX idx_trace_id trace_id TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_request_id request_id TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (model, time)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1;

-- A span is a request when it says how the request ended (evenkeel/spans.py).
CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_requests TO requests AS
SELECT
    Timestamp AS time,
    TraceId AS trace_id,
    SpanId AS span_id,
    ServiceName AS service,
    nullIf(SpanAttributes['gen_ai.operation.name'], '') AS operation,
    SpanAttributes['evenkeel.request.id'] AS request_id,
    nullIf(SpanAttributes['evenkeel.tenant'], '') AS tenant,
    nullIf(SpanAttributes['gen_ai.conversation.id'], '') AS session_id,
    SpanAttributes['gen_ai.request.model'] AS model,
    nullIf(SpanAttributes['evenkeel.slo_class'], '') AS slo_class,
    nullIf(SpanAttributes['evenkeel.route'], '') AS route,
    nullIf(SpanAttributes['evenkeel.prompt.name'], '') AS prompt_name,
    nullIf(SpanAttributes['evenkeel.prompt.version'], '') AS prompt_version,
    SpanAttributes['evenkeel.status'] AS status,
    nullIf(JSONExtractString(SpanAttributes['gen_ai.response.finish_reasons'], 1), '')
        AS finish_reason,
    nullIf(SpanAttributes['error.type'], '') AS error_type,
    toUInt32OrNull(SpanAttributes['gen_ai.request.max_tokens']) AS max_tokens,
    toFloat64OrNull(SpanAttributes['gen_ai.request.temperature']) AS temperature,
    toUInt32OrNull(SpanAttributes['gen_ai.usage.input_tokens']) AS input_tokens,
    toUInt32OrNull(SpanAttributes['gen_ai.usage.output_tokens']) AS output_tokens,
    toUInt32OrNull(SpanAttributes['gen_ai.usage.cache_read.input_tokens']) AS cached_tokens,
    toUInt32OrNull(SpanAttributes['evenkeel.wasted_tokens']) AS wasted_tokens,
    toFloat64OrNull(SpanAttributes['evenkeel.queue_s']) AS queue_s,
    toFloat64OrNull(SpanAttributes['evenkeel.prefill_s']) AS prefill_s,
    toFloat64OrNull(SpanAttributes['evenkeel.decode_s']) AS decode_s,
    toFloat64OrNull(SpanAttributes['evenkeel.ttft_s']) AS ttft_s,
    toFloat64OrNull(SpanAttributes['evenkeel.tpot_s']) AS tpot_s,
    toFloat64OrNull(SpanAttributes['evenkeel.itl_p50_s']) AS itl_p50_s,
    toFloat64OrNull(SpanAttributes['evenkeel.itl_p99_s']) AS itl_p99_s,
    toFloat64OrNull(SpanAttributes['evenkeel.stall_s']) AS stall_s,
    toFloat64OrNull(SpanAttributes['evenkeel.e2e_s']) AS e2e_s,
    toUInt32OrNull(SpanAttributes['evenkeel.drafted_tokens']) AS drafted_tokens,
    toUInt32OrNull(SpanAttributes['evenkeel.accepted_tokens']) AS accepted_tokens,
    JSONExtract(SpanAttributes['evenkeel.drafted_by_position'], 'Array(UInt32)') AS drafted_by_position,
    JSONExtract(SpanAttributes['evenkeel.accepted_by_position'], 'Array(UInt32)') AS accepted_by_position,
    nullIf(SpanAttributes['evenkeel.response_cache'], '') AS response_cache,
    JSONExtract(SpanAttributes['evenkeel.emission_time_s'], 'Array(Float64)') AS emission_time_s,
    JSONExtract(SpanAttributes['evenkeel.emission_tokens'], 'Array(UInt32)') AS emission_tokens,
    mapApply((cause, seconds) -> (substring(cause, 17), toFloat64OrZero(seconds)),
        mapFilter((key, _) -> startsWith(key, 'evenkeel.ledger.'), SpanAttributes)) AS ledger,
    coalesce(toFloat64OrNull(SpanAttributes['evenkeel.sample_weight']), 1) AS sample_weight,
    mapContains(SpanAttributes, 'evenkeel.clamped.start_unix_nano') AS is_time_clamped
FROM spans
WHERE SpanAttributes['evenkeel.status'] != '';

-- Latency is kept as TDigest states: quantilesTDigestMerge(0.5, 0.95, 0.99)(ttft_s).
-- Keys that a request does not have are '' here. cacheable_tokens are the input tokens of requests
-- whose cached tokens are known: the cached ratio is cached_tokens / cacheable_tokens.
CREATE TABLE IF NOT EXISTS requests_1m (
    minute DateTime('UTC'),
    model LowCardinality(String),
    tenant LowCardinality(String),
    slo_class LowCardinality(String),
    route LowCardinality(String),
    prompt_name LowCardinality(String),
    prompt_version LowCardinality(String),
    service LowCardinality(String),
    num_requests SimpleAggregateFunction(sum, UInt64),
    num_ok SimpleAggregateFunction(sum, UInt64),
    num_error SimpleAggregateFunction(sum, UInt64),
    num_aborted SimpleAggregateFunction(sum, UInt64),
    num_shed SimpleAggregateFunction(sum, UInt64),
    input_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    output_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    cached_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    wasted_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    drafted_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    accepted_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    cacheable_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    ttft_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    tpot_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    itl_p50_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    itl_p99_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    stall_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    e2e_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    queue_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    prefill_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    decode_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(minute)
ORDER BY (model, minute, tenant, slo_class, route, prompt_name, prompt_version, service)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS requests_to_requests_1m TO requests_1m AS
SELECT
    toStartOfMinute(time) AS minute,
    model,
    ifNull(requests.tenant, '') AS tenant,
    ifNull(requests.slo_class, '') AS slo_class,
    ifNull(requests.route, '') AS route,
    ifNull(requests.prompt_name, '') AS prompt_name,
    ifNull(requests.prompt_version, '') AS prompt_version,
    service,
    count() AS num_requests,
    countIf(status = 'ok') AS num_ok,
    countIf(status = 'error') AS num_error,
    countIf(status = 'aborted') AS num_aborted,
    countIf(status = 'shed') AS num_shed,
    sum(requests.input_tokens) AS input_tokens,
    sum(requests.output_tokens) AS output_tokens,
    sum(requests.cached_tokens) AS cached_tokens,
    sum(requests.wasted_tokens) AS wasted_tokens,
    sum(requests.drafted_tokens) AS drafted_tokens,
    sum(requests.accepted_tokens) AS accepted_tokens,
    sumIf(requests.input_tokens, isNotNull(requests.cached_tokens)) AS cacheable_tokens,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.ttft_s) AS ttft_s,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.tpot_s) AS tpot_s,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.itl_p50_s) AS itl_p50_s,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.itl_p99_s) AS itl_p99_s,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.stall_s) AS stall_s,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.e2e_s) AS e2e_s,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.queue_s) AS queue_s,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.prefill_s) AS prefill_s,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.decode_s) AS decode_s
FROM requests
GROUP BY minute, model, tenant, slo_class, route, prompt_name, prompt_version, service;

CREATE TABLE IF NOT EXISTS requests_1h (
    hour DateTime('UTC'),
    model LowCardinality(String),
    tenant LowCardinality(String),
    slo_class LowCardinality(String),
    route LowCardinality(String),
    prompt_name LowCardinality(String),
    prompt_version LowCardinality(String),
    service LowCardinality(String),
    num_requests SimpleAggregateFunction(sum, UInt64),
    num_ok SimpleAggregateFunction(sum, UInt64),
    num_error SimpleAggregateFunction(sum, UInt64),
    num_aborted SimpleAggregateFunction(sum, UInt64),
    num_shed SimpleAggregateFunction(sum, UInt64),
    input_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    output_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    cached_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    wasted_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    drafted_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    accepted_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    cacheable_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    ttft_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    tpot_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    itl_p50_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    itl_p99_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    stall_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    e2e_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    queue_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    prefill_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    decode_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(hour)
ORDER BY (model, hour, tenant, slo_class, route, prompt_name, prompt_version, service)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS requests_to_requests_1h TO requests_1h AS
SELECT
    toStartOfHour(time) AS hour,
    model,
    ifNull(requests.tenant, '') AS tenant,
    ifNull(requests.slo_class, '') AS slo_class,
    ifNull(requests.route, '') AS route,
    ifNull(requests.prompt_name, '') AS prompt_name,
    ifNull(requests.prompt_version, '') AS prompt_version,
    service,
    count() AS num_requests,
    countIf(status = 'ok') AS num_ok,
    countIf(status = 'error') AS num_error,
    countIf(status = 'aborted') AS num_aborted,
    countIf(status = 'shed') AS num_shed,
    sum(requests.input_tokens) AS input_tokens,
    sum(requests.output_tokens) AS output_tokens,
    sum(requests.cached_tokens) AS cached_tokens,
    sum(requests.wasted_tokens) AS wasted_tokens,
    sum(requests.drafted_tokens) AS drafted_tokens,
    sum(requests.accepted_tokens) AS accepted_tokens,
    sumIf(requests.input_tokens, isNotNull(requests.cached_tokens)) AS cacheable_tokens,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.ttft_s) AS ttft_s,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.tpot_s) AS tpot_s,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.itl_p50_s) AS itl_p50_s,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.itl_p99_s) AS itl_p99_s,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.stall_s) AS stall_s,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.e2e_s) AS e2e_s,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.queue_s) AS queue_s,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.prefill_s) AS prefill_s,
    quantilesTDigestState(0.5, 0.95, 0.99)(requests.decode_s) AS decode_s
FROM requests
GROUP BY hour, model, tenant, slo_class, route, prompt_name, prompt_version, service;
