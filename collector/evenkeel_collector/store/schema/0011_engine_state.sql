-- Metrics of engines: OTLP metrics, and what the scraper reads from Prometheus endpoints.

ALTER TABLE otlp_traces ADD COLUMN IF NOT EXISTS metric_groups Array(Tuple(
    resource_attributes Map(String, String),
    points Array(Tuple(
        time_unix_nano UInt64, start_unix_nano UInt64,
        name String, unit String, kind String, temporality String, is_monotonic Bool,
        value Nullable(Float64), count Nullable(UInt64), sum Nullable(Float64),
        min Nullable(Float64), max Nullable(Float64),
        bounds Array(Float64), bucket_counts Array(UInt64),
        attributes Map(String, String)))));

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
    is_time_clamped Bool
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (name, service, instance, time)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1;

-- Times are bounded as those of spans are (0001).
CREATE MATERIALIZED VIEW IF NOT EXISTS otlp_traces_to_engine_state TO engine_state AS
WITH
    point.time_unix_nano NOT BETWEEN received_unix_nano - 90 * 86400 * 1000000000
        AND received_unix_nano + 86400 * 1000000000 AS is_clamped
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
    point.value AS value,
    point.count AS count,
    point.sum AS sum,
    point.min AS min,
    point.max AS max,
    point.bounds AS bounds,
    point.bucket_counts AS bucket_counts,
    is_clamped AS is_time_clamped
FROM (
    SELECT received_unix_nano, metric_group.resource_attributes AS resource_attributes,
        arrayJoin(metric_group.points) AS point
    FROM (
        SELECT received_unix_nano, arrayJoin(metric_groups) AS metric_group FROM otlp_traces
    )
);
