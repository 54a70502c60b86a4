-- Which of these spans of these traces are there, by their ids, and whose they are.
SELECT DISTINCT TraceId, SpanId,
    if(SpanAttributes['evenkeel.tenant'] != '', SpanAttributes['evenkeel.tenant'],
        ResourceAttributes['evenkeel.tenant']) AS tenant
FROM spans
WHERE TraceId IN {traces:Array(String)} AND SpanId IN {spans:Array(String)}
