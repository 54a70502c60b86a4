-- Requests with a similar cached question whose answer was not used, most similar first; a person
-- reviews whether it should have been. Only a slice of each period is read.
SELECT
    TraceId AS trace_id,
    toUnixTimestamp64Milli(Timestamp) AS time_ms,
    SpanAttributes['evenkeel.request.id'] AS request_id,
    SpanAttributes['evenkeel.response_cache'] AS outcome,
    toFloat64OrNull(SpanAttributes['evenkeel.cache.similarity']) AS similarity,
    toFloat64OrNull(SpanAttributes['evenkeel.cache.threshold']) AS threshold,
    SpanAttributes['evenkeel.cache.reason'] AS reason,
    SpanAttributes['evenkeel.cache.verdict'] AS verdict,
    SpanAttributes['evenkeel.tenant'] AS tenant
FROM spans
WHERE Timestamp >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND toUnixTimestamp(Timestamp) % {period_s:UInt32} < {slice_s:UInt32}
    AND mapContains(SpanAttributes, 'evenkeel.cache.similarity')
    AND SpanAttributes['evenkeel.response_cache'] NOT IN ('exact', 'semantic')
    AND ({model:String} = '' OR SpanAttributes['gen_ai.request.model'] = {model:String})
    AND ({tenant:String} = '' OR SpanAttributes['evenkeel.tenant'] = {tenant:String})
    AND ({prompt:String} = '' OR concat(SpanAttributes['evenkeel.prompt.name'], '@',
        SpanAttributes['evenkeel.prompt.version']) = {prompt:String})
    AND ({slo_class:String} = '' OR SpanAttributes['evenkeel.slo_class'] = {slo_class:String})
ORDER BY similarity DESC NULLS LAST, time_ms DESC, trace_id, request_id
LIMIT {limit:UInt32}
