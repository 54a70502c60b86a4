-- Metrics of engines: OTLP metrics, and what the scraper reads from Prometheus endpoints.

-- Reached by few segments, as in 03_requests_of_others.sql.
CREATE TABLE IF NOT EXISTS metric_segments (
    received_unix_nano UInt64,
    metric_groups Array(Tuple(
        resource_attributes Map(String, String),
        points Array(Tuple(
            time_unix_nano UInt64, start_unix_nano UInt64,
            name String, unit String, kind String, temporality String, is_monotonic Bool,
            value Nullable(Float64), count Nullable(UInt64), sum Nullable(Float64),
            min Nullable(Float64), max Nullable(Float64),
            bounds Array(Float64), bucket_counts Array(UInt64),
            attributes Map(String, String)))))
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS otlp_traces_to_metric_segments TO metric_segments AS
SELECT received_unix_nano, metric_groups
FROM otlp_traces
WHERE notEmpty(metric_groups);

CREATE TABLE IF NOT EXISTS engine_state (
    time DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    start_time Nullable(DateTime64(9, 'UTC')),
    name LowCardinality(String),
    kind LowCardinality(String),
    unit LowCardinality(String),
    temporality LowCardinality(String),
    is_monotonic Bool,
    service LowCardinality(String),
    instance LowCardinality(String),
    model LowCardinality(String),
    attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    resource_attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    value Nullable(Float64),
    count Nullable(UInt64),
    sum Nullable(Float64),
    min Nullable(Float64),
    max Nullable(Float64),
    bounds Array(Float64) CODEC(ZSTD(1)),
    bucket_counts Array(UInt64) CODEC(ZSTD(1)),
    is_time_clamped Bool,
    refused_numbers Map(LowCardinality(String), LowCardinality(String))
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (name, service, instance, time)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1;

-- Times are bounded as those of spans are (01_spans.sql).
CREATE MATERIALIZED VIEW IF NOT EXISTS otlp_traces_to_engine_state TO engine_state AS
WITH
    point.time_unix_nano NOT BETWEEN received_unix_nano - 90 * 86400 * 1000000000
        AND received_unix_nano + 86400 * 1000000000 AS is_clamped,
    [point.value, point.sum, point.min, point.max] AS said,
    arrayMap(x -> if(x BETWEEN -1e30 AND 1e30, x, NULL), said) AS numbers,
    if(point.count <= 1000000000000000, point.count, NULL) AS count_in_range,
    arrayAll(x -> isFinite(x), point.bounds) AND arraySort(point.bounds) = point.bounds
        AS are_bounds_kept,
    length(point.bucket_counts) = length(point.bounds) + 1 AS are_as_many,
    arrayAll(x -> x <= 1000000000000000, point.bucket_counts) AS are_counts_kept,
    are_bounds_kept AND are_as_many AND are_counts_kept AS are_buckets_kept
SELECT
    fromUnixTimestamp64Nano(toInt64(if(is_clamped, received_unix_nano, point.time_unix_nano)), 'UTC')
        AS time,
    if(point.start_unix_nano BETWEEN 1 AND 4102444800000000000,
        fromUnixTimestamp64Nano(toInt64(point.start_unix_nano), 'UTC'), NULL) AS start_time,
    point.name AS name,
    point.kind AS kind,
    point.unit AS unit,
    point.temporality AS temporality,
    point.is_monotonic AS is_monotonic,
    resource_attributes['service.name'] AS service,
    resource_attributes['service.instance.id'] AS instance,
    attributes[arrayFirst(key -> attributes[key] != '',
        ['gen_ai.request.model', 'gen_ai.response.model', 'model_name'])] AS model,
    point.attributes AS attributes,
    resource_attributes,
    numbers[1] AS value,
    count_in_range AS count,
    numbers[2] AS sum,
    numbers[3] AS min,
    numbers[4] AS max,
    if(are_buckets_kept, point.bounds, []) AS bounds,
    if(are_buckets_kept, point.bucket_counts, []) AS bucket_counts,
    is_clamped AS is_time_clamped,
    CAST(arrayConcat(
        arrayMap((name, x) -> (name, if(isFinite(x), 'out_of_range', 'not_finite')),
            arrayFilter((name, x, number) -> isNotNull(x) AND isNull(number),
                ['value', 'sum', 'min', 'max'], said, numbers),
            arrayFilter((x, number) -> isNotNull(x) AND isNull(number), said, numbers)),
        if(isNotNull(point.count) AND isNull(count_in_range), [('count', 'out_of_range')], []),
        multiIf(are_buckets_kept OR empty(point.bucket_counts), [],
            NOT are_bounds_kept, [('bounds', if(arrayAll(x -> isFinite(x), point.bounds), 'out_of_range',
                'not_finite'))],
            NOT are_counts_kept, [('bucket_counts', 'out_of_range')],
            [('bucket_counts', 'lengths_differ')])), 'Map(LowCardinality(String), LowCardinality(String))')
                AS refused_numbers
FROM (
    SELECT received_unix_nano, metric_group.resource_attributes AS resource_attributes,
        arrayJoin(metric_group.points) AS point
    FROM (
        SELECT received_unix_nano, arrayJoin(metric_groups) AS metric_group FROM metric_segments
    )
);
