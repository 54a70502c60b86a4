-- Which of these spans of these traces are there, by their ids.
SELECT TraceId, SpanId
FROM spans
WHERE TraceId IN {traces:Array(String)} AND SpanId IN {spans:Array(String)}
