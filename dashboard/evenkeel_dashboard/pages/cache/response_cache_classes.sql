-- Classes of near hits over a range: the selected requests with such a hit, and the evidence as a runtime
-- last reported it, which is of all requests. A replay adds to the evidence only.
WITH
    toUnixTimestamp64Nano(Timestamp) + Duration AS ended_ns,
    ({model:String} = '' OR SpanAttributes['gen_ai.request.model'] = {model:String})
        AND ({tenant:String} = '' OR SpanAttributes['evenkeel.tenant'] = {tenant:String})
        AND ({prompt:String} = '' OR concat(SpanAttributes['evenkeel.prompt.name'], '@',
            SpanAttributes['evenkeel.prompt.version']) = {prompt:String})
        AND ({slo_class:String} = '' OR SpanAttributes['evenkeel.slo_class'] = {slo_class:String})
        AS is_selected
SELECT
    SpanAttributes['evenkeel.cache.route'] AS route,
    SpanAttributes['evenkeel.cache.kind'] AS kind,
    toFloat64OrZero(SpanAttributes['evenkeel.cache.class.similarity']) AS similarity,
    toFloat64OrZero(SpanAttributes['evenkeel.cache.class.lead']) AS lead,
    countIf(is_selected AND SpanAttributes['evenkeel.response_cache'] != 'replay') AS num_hits,
    countIf(is_selected AND SpanAttributes['evenkeel.response_cache'] = 'semantic') AS num_served,
    countIf(is_selected AND SpanAttributes['evenkeel.response_cache'] = 'verified') AS num_verified,
    argMax(toUInt64OrZero(SpanAttributes['evenkeel.cache.class.seen']), ended_ns) AS seen,
    argMax(toUInt64OrZero(SpanAttributes['evenkeel.cache.class.wrong']), ended_ns) AS wrong,
    argMax(toUInt64OrZero(SpanAttributes['evenkeel.cache.class.labelled']), ended_ns) AS labelled,
    argMax(toFloat64OrNull(SpanAttributes['evenkeel.cache.bound']), ended_ns) AS wrong_bound,
    argMax(toFloat64OrNull(SpanAttributes['evenkeel.cache.limit']), ended_ns) AS wrong_limit,
    argMax(SpanAttributes['evenkeel.cache.class.status'], ended_ns) AS status,
    argMaxIf(SpanAttributes['evenkeel.cache.mode'], ended_ns,
        SpanAttributes['evenkeel.cache.mode'] != '') AS mode
FROM spans
WHERE Timestamp >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND mapContains(SpanAttributes, 'evenkeel.cache.class.status')
GROUP BY route, kind, similarity, lead
ORDER BY num_hits DESC, route, kind, similarity, lead
LIMIT 60
