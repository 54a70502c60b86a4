-- One span with everything that was received of it; ids that repeat give several rows.
SELECT
    toUnixTimestamp64Nano(Timestamp) AS time_ns, SpanId AS span_id, ParentSpanId AS parent_span_id,
    SpanName AS name, SpanKind AS kind, ServiceName AS service, Duration AS duration_ns,
    StatusCode AS status_code, StatusMessage AS status_message, ScopeName AS scope,
    ScopeVersion AS scope_version, SpanAttributes AS attributes,
    ResourceAttributes AS resource_attributes, Events.Name AS event_names,
    arrayMap(time -> toUnixTimestamp64Nano(time), Events.Timestamp) AS event_times_ns,
    Events.Attributes AS event_attributes, Links.TraceId AS link_trace_ids
FROM evenkeel.spans
WHERE TraceId = {trace_id:String} AND SpanId = {span_id:String}
  AND Timestamp BETWEEN fromUnixTimestamp64Milli({from_ms:Int64})
      AND fromUnixTimestamp64Milli({to_ms:Int64})
ORDER BY Timestamp
LIMIT 10
