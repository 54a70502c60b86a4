-- Spans as the OpenTelemetry Collector's ClickHouse exporter stores them, fed from raw OTLP.
-- The log forgets a segment once it is inserted: hence fsync, and a window of tokens to repeat it.
-- Parts are merged by the dozen and not by twos and threes, and a part of an insert is one file for all
-- columns: docs/decisions/0171.

CREATE TABLE IF NOT EXISTS spans (
    Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    ParentSpanId String CODEC(ZSTD(1)),
    TraceState String CODEC(ZSTD(1)),
    SpanName LowCardinality(String) CODEC(ZSTD(1)),
    SpanKind LowCardinality(String) CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion String CODEC(ZSTD(1)),
    SpanAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    Duration UInt64 CODEC(ZSTD(1)),
    StatusCode LowCardinality(String) CODEC(ZSTD(1)),
    StatusMessage String CODEC(ZSTD(1)),
    Events Nested (
        Timestamp DateTime64(9),
        Name LowCardinality(String),
        Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),
    Links Nested (
        TraceId String,
        SpanId String,
        TraceState String,
        Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_span_attr_key mapKeys(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_duration Duration TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp))
SETTINGS index_granularity = 8192, non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1,
    merge_selector_base = 12, min_bytes_for_wide_part = 134217728;

-- What a log segment is inserted into: one row per segment, nothing kept (otlp_traces.proto).
CREATE TABLE IF NOT EXISTS otlp_traces (
    received_unix_nano UInt64,
    resource_spans Array(Tuple(
        resource Tuple(attributes Array(Tuple(key String, value Tuple(
            string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
            double_value Nullable(Float64), bytes_value Nullable(String),
            array_value Tuple(values Array(Tuple(
                string_value Nullable(String), bool_value Nullable(Bool),
                int_value Nullable(Int64), double_value Nullable(Float64),
                bytes_value Nullable(String)))))))),
        scope_spans Array(Tuple(
            scope Tuple(name String, version String),
            spans Array(Tuple(
                trace_id String, span_id String, trace_state String, parent_span_id String,
                name String, kind Int32,
                start_time_unix_nano UInt64, end_time_unix_nano UInt64,
                attributes Array(Tuple(key String, value Tuple(
                    string_value Nullable(String), bool_value Nullable(Bool),
                    int_value Nullable(Int64), double_value Nullable(Float64),
                    bytes_value Nullable(String),
                    array_value Tuple(values Array(Tuple(
                        string_value Nullable(String), bool_value Nullable(Bool),
                        int_value Nullable(Int64), double_value Nullable(Float64),
                        bytes_value Nullable(String))))))),
                events Array(Tuple(
                    time_unix_nano UInt64, name String,
                    attributes Array(Tuple(key String, value Tuple(
                        string_value Nullable(String), bool_value Nullable(Bool),
                        int_value Nullable(Int64), double_value Nullable(Float64),
                        bytes_value Nullable(String),
                        array_value Tuple(values Array(Tuple(
                            string_value Nullable(String), bool_value Nullable(Bool),
                            int_value Nullable(Int64), double_value Nullable(Float64),
                            bytes_value Nullable(String))))))))),
                links Array(Tuple(
                    trace_id String, span_id String, trace_state String,
                    attributes Array(Tuple(key String, value Tuple(
                        string_value Nullable(String), bool_value Nullable(Bool),
                        int_value Nullable(Int64), double_value Nullable(Float64),
                        bytes_value Nullable(String),
                        array_value Tuple(values Array(Tuple(
                            string_value Nullable(String), bool_value Nullable(Bool),
                            int_value Nullable(Int64), double_value Nullable(Float64),
                            bytes_value Nullable(String))))))))),
                status Tuple(message String, code Int32))))))),
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

-- Times outside [received - 90 days, received + 1 day] would open partitions without bound: such a
-- span starts when it was received; a span without a believable end, or that ends before it starts,
-- has no duration. Both keep what they said in evenkeel.clamped.*.
CREATE MATERIALIZED VIEW IF NOT EXISTS otlp_traces_to_spans TO spans AS
WITH
    (v -> if(isNull(v.double_value),
        multiIf(isNotNull(v.int_value), toString(v.int_value),
            isNotNull(v.string_value), toJSONString(v.string_value),
            isNotNull(v.bool_value), toString(v.bool_value),
            isNotNull(v.bytes_value), toJSONString(base64Encode(v.bytes_value)),
            'null'),
        if(isFinite(v.double_value), toString(v.double_value), 'null'))) AS json_of,
    (v -> coalesce(
        v.string_value, toString(v.double_value), toString(v.int_value), toString(v.bool_value),
        base64Encode(v.bytes_value),
        if(empty(v.array_value.values), '',
            concat('[', arrayStringConcat(arrayMap(json_of, v.array_value.values), ','), ']'))
    )) AS text_of,
    (attributes -> CAST(arrayMap(a -> (a.key, text_of(a.value)), attributes),
        'Map(LowCardinality(String), String)')) AS map_of,
    received_unix_nano - 90 * 86400 * 1000000000 AS earliest,
    received_unix_nano + 86400 * 1000000000 AS latest,
    span.start_time_unix_nano BETWEEN earliest AND latest AS is_start_kept,
    span.end_time_unix_nano BETWEEN earliest AND latest AS is_end_kept,
    if(is_start_kept, span.start_time_unix_nano, received_unix_nano) AS start_ns,
    if(is_end_kept, span.end_time_unix_nano, start_ns) AS end_ns,
    (ns -> fromUnixTimestamp64Nano(toInt64(least(ns, 4102444800000000000)))) AS time_of
SELECT
    fromUnixTimestamp64Nano(toInt64(start_ns)) AS Timestamp,
    lower(hex(span.trace_id)) AS TraceId,
    lower(hex(span.span_id)) AS SpanId,
    lower(hex(span.parent_span_id)) AS ParentSpanId,
    span.trace_state AS TraceState,
    span.name AS SpanName,
    ['Unspecified', 'Internal', 'Server', 'Client', 'Producer', 'Consumer'][
        if(span.kind BETWEEN 1 AND 5, span.kind, 0) + 1] AS SpanKind,
    ResourceAttributes['service.name'] AS ServiceName,
    ResourceAttributes,
    scope_name AS ScopeName,
    scope_version AS ScopeVersion,
    if(is_start_kept AND is_end_kept AND end_ns >= start_ns,
        map_of(span.attributes),
        mapConcat(map_of(span.attributes), map(
            'evenkeel.clamped.start_unix_nano', toString(span.start_time_unix_nano),
            'evenkeel.clamped.end_unix_nano', toString(span.end_time_unix_nano)))
    ) AS SpanAttributes,
    if(end_ns >= start_ns, end_ns - start_ns, 0) AS Duration,
    ['Unset', 'Ok', 'Error'][if(span.status.code BETWEEN 1 AND 2, span.status.code, 0) + 1]
        AS StatusCode,
    span.status.message AS StatusMessage,
    arrayMap(e -> time_of(e.time_unix_nano), span.events) AS `Events.Timestamp`,
    span.events.name AS `Events.Name`,
    arrayMap(e -> map_of(e.attributes), span.events) AS `Events.Attributes`,
    arrayMap(l -> lower(hex(l.trace_id)), span.links) AS `Links.TraceId`,
    arrayMap(l -> lower(hex(l.span_id)), span.links) AS `Links.SpanId`,
    span.links.trace_state AS `Links.TraceState`,
    arrayMap(l -> map_of(l.attributes), span.links) AS `Links.Attributes`
FROM (
    SELECT received_unix_nano, ResourceAttributes, scope_spans.scope.name AS scope_name,
        scope_spans.scope.version AS scope_version, arrayJoin(scope_spans.spans) AS span
    FROM (
        SELECT received_unix_nano, map_of(resource_spans.resource.attributes) AS ResourceAttributes,
            arrayJoin(resource_spans.scope_spans) AS scope_spans
        FROM (SELECT received_unix_nano, arrayJoin(resource_spans) AS resource_spans FROM otlp_traces)
    )
);
