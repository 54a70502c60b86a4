-- The spans of one trace in brief, by start: of the attributes only the named ones, and of long texts their
-- beginning.
SELECT
    toUnixTimestamp64Nano(Timestamp) AS time_ns, SpanId AS span_id, ParentSpanId AS parent_span_id,
    substringUTF8(SpanName, 1, 300) AS name, SpanKind AS kind,
    substringUTF8(ServiceName, 1, 200) AS service, Duration AS duration_ns,
    StatusCode AS status_code, substringUTF8(StatusMessage, 1, 300) AS status_message,
    toJSONString(mapApply(
        (key, text) -> (key, substringUTF8(text, 1, 300)),
        mapFilter((key, _) -> has({names:Array(String)}, key), SpanAttributes)
    )) AS attributes,
    count() OVER () AS num_spans
FROM evenkeel.spans
WHERE TraceId = {trace_id:String}
  AND Timestamp BETWEEN fromUnixTimestamp64Milli({from_ms:Int64})
      AND fromUnixTimestamp64Milli({to_ms:Int64})
ORDER BY Timestamp, SpanId
LIMIT {limit:UInt32}
