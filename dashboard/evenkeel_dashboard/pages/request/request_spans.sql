-- The spans of one trace in brief, by start: of the attributes only the named ones.
SELECT
    toUnixTimestamp64Nano(Timestamp) AS time_ns, SpanId AS span_id, ParentSpanId AS parent_span_id,
    SpanName AS name, SpanKind AS kind, ServiceName AS service, Duration AS duration_ns,
    StatusCode AS status_code, left(StatusMessage, 200) AS status_message,
    toJSONString(mapFilter((key, _) -> has({names:Array(String)}, key), SpanAttributes)) AS attributes,
    count() OVER () AS num_spans
FROM evenkeel.spans
WHERE TraceId = {trace_id:String}
  AND Timestamp BETWEEN fromUnixTimestamp64Milli({from_ms:Int64})
      AND fromUnixTimestamp64Milli({to_ms:Int64})
ORDER BY Timestamp, SpanId
LIMIT {limit:UInt32}
