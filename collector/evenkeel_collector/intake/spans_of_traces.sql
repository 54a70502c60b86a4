-- The spans of these traces, by their ids.
SELECT TraceId, SpanId
FROM spans
WHERE TraceId IN {traces:Array(String)}
