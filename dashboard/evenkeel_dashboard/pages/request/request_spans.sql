-- The spans of one trace, as received, ordered by start.
SELECT
    toUnixTimestamp64Nano(Timestamp) AS time_ns, SpanId AS span_id, ParentSpanId AS parent_span_id, SpanName AS name,
    SpanKind AS kind, ServiceName AS service, Duration AS duration_ns, StatusCode AS status_code,
    StatusMessage AS status_message, SpanAttributes AS attributes,
    ResourceAttributes AS resource_attributes
FROM evenkeel.spans
WHERE TraceId = {trace_id:String}
  AND Timestamp BETWEEN fromUnixTimestamp64Milli({from_ms:Int64})
      AND fromUnixTimestamp64Milli({to_ms:Int64})
ORDER BY Timestamp, SpanId
LIMIT 200
