-- Requests by minute and by hour. Counts are weighted by sample_weight, hence no whole numbers if a sender
-- sampled. Keys that a request does not have are '' here. cacheable_tokens are the input tokens of requests
-- whose cached tokens are known: the cached ratio is cached_tokens / cacheable_tokens. Latency is kept as
-- TDigest states: quantilesTDigestMerge(0.5, 0.95, 0.99)(ttft_s).

CREATE TABLE IF NOT EXISTS requests_1m (
    minute DateTime('UTC'),
    model LowCardinality(String),
    tenant LowCardinality(String),
    slo_class LowCardinality(String),
    route LowCardinality(String),
    prompt_name LowCardinality(String),
    prompt_version LowCardinality(String),
    service LowCardinality(String),
    num_requests SimpleAggregateFunction(sum, Float64),
    num_ok SimpleAggregateFunction(sum, Float64),
    num_error SimpleAggregateFunction(sum, Float64),
    num_aborted SimpleAggregateFunction(sum, Float64),
    num_shed SimpleAggregateFunction(sum, Float64),
    input_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    output_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    cached_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    wasted_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    drafted_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    accepted_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    cacheable_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    ttft_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    tpot_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    itl_p50_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    itl_p99_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    stall_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    e2e_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    queue_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    prefill_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    decode_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    queue_sum_s SimpleAggregateFunction(sum, Float64),
    prefill_sum_s SimpleAggregateFunction(sum, Float64),
    decode_sum_s SimpleAggregateFunction(sum, Float64),
    num_queue SimpleAggregateFunction(sum, Float64),
    num_prefill SimpleAggregateFunction(sum, Float64),
    num_decode SimpleAggregateFunction(sum, Float64),
    slo_good SimpleAggregateFunction(sumMap, Map(String, Float64)),
    slo_bad SimpleAggregateFunction(sumMap, Map(String, Float64)),
    -- Percentiles of a model by minute, over all its cohorts: the digests of a minute merged once, as it
    -- is stored, and not at each look (docs/decisions/0172). The engine reads it by itself if a query asks
    -- for nothing else.
    PROJECTION by_model (
        SELECT
            minute,
            model,
            quantilesTDigestMerge(0.5, 0.95, 0.99)(ttft_s),
            quantilesTDigestMerge(0.5, 0.95, 0.99)(tpot_s),
            quantilesTDigestMerge(0.5, 0.95, 0.99)(itl_p99_s),
            quantilesTDigestMerge(0.5, 0.95, 0.99)(stall_s),
            quantilesTDigestMerge(0.5, 0.95, 0.99)(e2e_s),
            quantilesTDigestMerge(0.5, 0.95, 0.99)(queue_s)
        GROUP BY minute, model
    )
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(minute)
ORDER BY (model, minute, tenant, slo_class, route, prompt_name, prompt_version, service)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1,
    index_granularity = 8192, merge_selector_base = 12, deduplicate_merge_projection_mode = 'rebuild';

CREATE TABLE IF NOT EXISTS requests_1h (
    hour DateTime('UTC'),
    model LowCardinality(String),
    tenant LowCardinality(String),
    slo_class LowCardinality(String),
    route LowCardinality(String),
    prompt_name LowCardinality(String),
    prompt_version LowCardinality(String),
    service LowCardinality(String),
    num_requests SimpleAggregateFunction(sum, Float64),
    num_ok SimpleAggregateFunction(sum, Float64),
    num_error SimpleAggregateFunction(sum, Float64),
    num_aborted SimpleAggregateFunction(sum, Float64),
    num_shed SimpleAggregateFunction(sum, Float64),
    input_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    output_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    cached_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    wasted_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    drafted_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    accepted_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    cacheable_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    ttft_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    tpot_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    itl_p50_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    itl_p99_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    stall_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    e2e_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    queue_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    prefill_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    decode_s AggregateFunction(quantilesTDigest(0.5, 0.95, 0.99), Nullable(Float64)),
    queue_sum_s SimpleAggregateFunction(sum, Float64),
    prefill_sum_s SimpleAggregateFunction(sum, Float64),
    decode_sum_s SimpleAggregateFunction(sum, Float64),
    num_queue SimpleAggregateFunction(sum, Float64),
    num_prefill SimpleAggregateFunction(sum, Float64),
    num_decode SimpleAggregateFunction(sum, Float64),
    slo_good SimpleAggregateFunction(sumMap, Map(String, Float64)),
    slo_bad SimpleAggregateFunction(sumMap, Map(String, Float64))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(hour)
ORDER BY (model, hour, tenant, slo_class, route, prompt_name, prompt_version, service)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1,
    index_granularity = 8192, merge_selector_base = 12;

-- Their queries are set at each start from rollup.sql and rollup_hour.sql: they hold the objectives.
CREATE MATERIALIZED VIEW IF NOT EXISTS requests_to_requests_1m TO requests_1m AS
SELECT toStartOfMinute(time) AS minute, model, sum(sample_weight) AS num_requests
FROM requests
GROUP BY minute, model;

CREATE MATERIALIZED VIEW IF NOT EXISTS requests_to_requests_1h TO requests_1h AS
SELECT toStartOfHour(minute) AS hour, model, sum(requests_1m.num_requests) AS num_requests
FROM requests_1m
GROUP BY hour, model;

-- The rollups over a range in as few rows as it takes: whole hours from the hourly one where steps are
-- whole hours, all else from that of minutes. `minute` is the begin of either; ends are whole minutes.
CREATE VIEW IF NOT EXISTS requests_rolled AS
SELECT *
FROM requests_1m
WHERE minute >= toDateTime(intDiv({from_ms:Int64}, 1000), 'UTC')
    AND minute < toDateTime(intDiv({to_ms:Int64} + 999, 1000), 'UTC')
    AND ({step_s:UInt32} % 3600 != 0
        OR minute < toStartOfHour(toDateTime(intDiv({from_ms:Int64}, 1000) + 3599, 'UTC'))
        OR minute >= toStartOfHour(toDateTime(intDiv({to_ms:Int64}, 1000), 'UTC')))
UNION ALL
SELECT *
FROM requests_1h
WHERE {step_s:UInt32} % 3600 = 0
    AND hour >= toStartOfHour(toDateTime(intDiv({from_ms:Int64}, 1000) + 3599, 'UTC'))
    AND hour < toStartOfHour(toDateTime(intDiv({to_ms:Int64}, 1000), 'UTC'));
