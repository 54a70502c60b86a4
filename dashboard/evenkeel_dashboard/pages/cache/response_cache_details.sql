-- Details of the response cache's answers, from the spans of the requests it looked up. Unused are near
-- hits neither served nor verified, on routes that may use them; replayed are the model's own answers to
-- requests that the cache answered. The bound is that of near hits served.
SELECT
    SpanAttributes['evenkeel.cache.mode'] AS mode,
    SpanAttributes['evenkeel.cache.reason'] AS reason,
    SpanAttributes['evenkeel.cache.verdict'] AS verdict,
    count() AS num_requests,
    countIf(SpanAttributes['evenkeel.response_cache'] IN ('exact', 'semantic')) AS num_served,
    countIf(SpanAttributes['evenkeel.response_cache'] = 'verified') AS num_verified,
    countIf(SpanAttributes['evenkeel.response_cache'] IN ('miss', 'draft')
        AND SpanAttributes['evenkeel.cache.mode'] IN ('serve', 'draft')
        AND mapContains(SpanAttributes, 'evenkeel.cache.similarity')) AS num_unused,
    countIf(SpanAttributes['evenkeel.response_cache'] = 'replay') AS num_replayed,
    sum(toFloat64OrZero(SpanAttributes['evenkeel.cache.saved_s'])) AS saved_s,
    sum(toUInt64OrZero(SpanAttributes['evenkeel.cache.saved_tokens'])) AS saved_tokens,
    avgOrNull(toFloat64OrNull(SpanAttributes['evenkeel.cache.lookup_s'])) AS lookup_s,
    argMaxIf(toFloat64OrNull(SpanAttributes['evenkeel.cache.bound']), Timestamp,
        SpanAttributes['evenkeel.cache.bound'] != ''
            AND SpanAttributes['evenkeel.response_cache'] IN ('semantic', 'replay')) AS wrong_bound,
    argMaxIf(toFloat64OrNull(SpanAttributes['evenkeel.cache.limit']), Timestamp,
        SpanAttributes['evenkeel.cache.limit'] != ''
            AND SpanAttributes['evenkeel.response_cache'] IN ('semantic', 'replay')) AS wrong_limit
FROM spans
WHERE Timestamp >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND mapContains(SpanAttributes, 'evenkeel.response_cache')
    AND ({model:String} = '' OR SpanAttributes['gen_ai.request.model'] = {model:String})
    AND ({tenant:String} = '' OR SpanAttributes['evenkeel.tenant'] = {tenant:String})
    AND ({prompt:String} = '' OR concat(SpanAttributes['evenkeel.prompt.name'], '@',
        SpanAttributes['evenkeel.prompt.version']) = {prompt:String})
    AND ({slo_class:String} = '' OR SpanAttributes['evenkeel.slo_class'] = {slo_class:String})
GROUP BY mode, reason, verdict
ORDER BY num_requests DESC
LIMIT 200
