-- Log records as the OpenTelemetry Collector's ClickHouse exporter stores them (otel_logs), through the
-- same segments as spans. Indexed is what is looked up: ids, names of attributes, words.
ALTER TABLE otlp_traces ADD COLUMN IF NOT EXISTS resource_logs Array(Tuple(
    resource Tuple(attributes Array(Tuple(key String, value Tuple(
        string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
        double_value Nullable(Float64), bytes_value Nullable(String),
        array_value Tuple(values Array(Tuple(
            string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
            double_value Nullable(Float64), bytes_value Nullable(String)))))))),
    scope_logs Array(Tuple(
        scope Tuple(name String, version String, attributes Array(Tuple(key String, value Tuple(
            string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
            double_value Nullable(Float64), bytes_value Nullable(String),
            array_value Tuple(values Array(Tuple(
                string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                double_value Nullable(Float64), bytes_value Nullable(String)))))))),
        log_records Array(Tuple(
            time_unix_nano UInt64, observed_time_unix_nano UInt64,
            severity_number Int32, severity_text String, event_name String,
            body Tuple(
                string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                double_value Nullable(Float64), bytes_value Nullable(String),
                array_value Tuple(values Array(Tuple(
                    string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                    double_value Nullable(Float64), bytes_value Nullable(String))))),
            attributes Array(Tuple(key String, value Tuple(
                string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                double_value Nullable(Float64), bytes_value Nullable(String),
                array_value Tuple(values Array(Tuple(
                    string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                    double_value Nullable(Float64), bytes_value Nullable(String))))))),
            flags UInt32, trace_id String, span_id String)),
        schema_url String)),
    schema_url String));

CREATE TABLE IF NOT EXISTS logs (
    Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)),
    TimestampTime DateTime DEFAULT toDateTime(Timestamp),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    TraceFlags UInt8,
    SeverityText LowCardinality(String) CODEC(ZSTD(1)),
    SeverityNumber UInt8,
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    Body String CODEC(ZSTD(1)),
    ResourceSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion LowCardinality(String) CODEC(ZSTD(1)),
    ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    LogAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    EventName String CODEC(ZSTD(1)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_log_attr_key mapKeys(LogAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_body Body TYPE tokenbf_v1(32768, 3, 0) GRANULARITY 8
)
ENGINE = MergeTree
PARTITION BY toDate(TimestampTime)
ORDER BY (ServiceName, TimestampTime, Timestamp)
SETTINGS index_granularity = 8192, non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1,
    merge_selector_base = 12, min_bytes_for_wide_part = 134217728;

-- Reached by segments with log records only, as in 03_requests_of_others.sql.
CREATE TABLE IF NOT EXISTS log_segments (
    received_unix_nano UInt64,
    resource_logs Array(Tuple(
        resource Tuple(attributes Array(Tuple(key String, value Tuple(
            string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
            double_value Nullable(Float64), bytes_value Nullable(String),
            array_value Tuple(values Array(Tuple(
                string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                double_value Nullable(Float64), bytes_value Nullable(String)))))))),
        scope_logs Array(Tuple(
            scope Tuple(name String, version String, attributes Array(Tuple(key String, value Tuple(
                string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                double_value Nullable(Float64), bytes_value Nullable(String),
                array_value Tuple(values Array(Tuple(
                    string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                    double_value Nullable(Float64), bytes_value Nullable(String)))))))),
            log_records Array(Tuple(
                time_unix_nano UInt64, observed_time_unix_nano UInt64,
                severity_number Int32, severity_text String, event_name String,
                body Tuple(
                    string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                    double_value Nullable(Float64), bytes_value Nullable(String),
                    array_value Tuple(values Array(Tuple(
                        string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                        double_value Nullable(Float64), bytes_value Nullable(String))))),
                attributes Array(Tuple(key String, value Tuple(
                    string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                    double_value Nullable(Float64), bytes_value Nullable(String),
                    array_value Tuple(values Array(Tuple(
                        string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                        double_value Nullable(Float64), bytes_value Nullable(String))))))),
                flags UInt32, trace_id String, span_id String)),
            schema_url String)),
        schema_url String))
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS otlp_traces_to_log_segments TO log_segments AS
SELECT received_unix_nano, resource_logs
FROM otlp_traces
WHERE notEmpty(resource_logs);

-- A record without a time has the time at which it was observed, as in the exporter. Times are bounded as
-- those of spans are (01_spans.sql). A severity outside 0 to 24 is 0, an id of a wrong length is empty. The
-- attributes evenkeel.clamped.* and evenkeel.refused.* keep what was sent.
CREATE MATERIALIZED VIEW IF NOT EXISTS log_segments_to_logs TO logs AS
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
    if(record.time_unix_nano = 0, record.observed_time_unix_nano, record.time_unix_nano) AS sent_ns,
    sent_ns BETWEEN received_unix_nano - 90 * 86400 * 1000000000
        AND received_unix_nano + 86400 * 1000000000 AS is_time_kept,
    record.severity_number BETWEEN 0 AND 24 AS is_severity_kept,
    length(record.trace_id) IN (0, 16) AS is_trace_id_kept,
    length(record.span_id) IN (0, 8) AS is_span_id_kept
SELECT
    fromUnixTimestamp64Nano(toInt64(if(is_time_kept, sent_ns, received_unix_nano))) AS Timestamp,
    if(is_trace_id_kept, lower(hex(record.trace_id)), '') AS TraceId,
    if(is_span_id_kept, lower(hex(record.span_id)), '') AS SpanId,
    toUInt8(bitAnd(record.flags, 255)) AS TraceFlags,
    record.severity_text AS SeverityText,
    if(is_severity_kept, toUInt8(record.severity_number), 0) AS SeverityNumber,
    ResourceAttributes['service.name'] AS ServiceName,
    text_of(record.body) AS Body,
    resource_schema_url AS ResourceSchemaUrl,
    ResourceAttributes,
    scope_schema_url AS ScopeSchemaUrl,
    scope_name AS ScopeName,
    scope_version AS ScopeVersion,
    ScopeAttributes,
    if(is_time_kept AND is_severity_kept AND is_trace_id_kept AND is_span_id_kept,
        map_of(record.attributes),
        mapConcat(map_of(record.attributes), CAST(arrayConcat(
            if(is_time_kept, [], [('evenkeel.clamped.time_unix_nano', toString(sent_ns))]),
            if(is_severity_kept, [],
                [('evenkeel.refused.severity_number', toString(record.severity_number))]),
            if(is_trace_id_kept, [], [('evenkeel.refused.trace_id', lower(hex(record.trace_id)))]),
            if(is_span_id_kept, [], [('evenkeel.refused.span_id', lower(hex(record.span_id)))])),
            'Map(LowCardinality(String), String)'))
    ) AS LogAttributes,
    record.event_name AS EventName
FROM (
    SELECT received_unix_nano, ResourceAttributes, resource_schema_url,
        map_of(scope_logs.scope.attributes) AS ScopeAttributes,
        scope_logs.scope.name AS scope_name, scope_logs.scope.version AS scope_version,
        scope_logs.schema_url AS scope_schema_url, arrayJoin(scope_logs.log_records) AS record
    FROM (
        SELECT received_unix_nano, map_of(resource_logs.resource.attributes) AS ResourceAttributes,
            resource_logs.schema_url AS resource_schema_url,
            arrayJoin(resource_logs.scope_logs) AS scope_logs
        FROM (
            SELECT received_unix_nano, arrayJoin(resource_logs) AS resource_logs FROM log_segments
        )
    )
);

CREATE MATERIALIZED VIEW IF NOT EXISTS logs_to_refused_numbers TO refused_numbers AS
SELECT 'logs' AS source, refused.1 AS field, refused.2 AS reason, count() AS num
FROM (
    SELECT arrayJoin(arrayFilter(each -> mapContains(LogAttributes, each.3), [
        ('Timestamp', 'out_of_range', 'evenkeel.clamped.time_unix_nano'),
        ('SeverityNumber', 'out_of_range', 'evenkeel.refused.severity_number'),
        ('TraceId', 'wrong_length', 'evenkeel.refused.trace_id'),
        ('SpanId', 'wrong_length', 'evenkeel.refused.span_id')])) AS refused
    FROM logs
    WHERE hasAny(mapKeys(LogAttributes), ['evenkeel.clamped.time_unix_nano',
        'evenkeel.refused.severity_number', 'evenkeel.refused.trace_id', 'evenkeel.refused.span_id'])
)
GROUP BY field, reason;
