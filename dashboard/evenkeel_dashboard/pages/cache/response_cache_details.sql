-- Details of the response cache's answers, from the spans of the requests it looked up.
SELECT
    SpanAttributes['evenkeel.cache.mode'] AS mode,
    SpanAttributes['evenkeel.cache.reason'] AS reason,
    SpanAttributes['evenkeel.cache.verdict'] AS verdict,
    count() AS num_requests,
    sum(toFloat64OrZero(SpanAttributes['evenkeel.cache.saved_s'])) AS saved_s,
    sum(toUInt64OrZero(SpanAttributes['evenkeel.cache.saved_tokens'])) AS saved_tokens,
    avgOrNull(toFloat64OrNull(SpanAttributes['evenkeel.cache.lookup_s'])) AS lookup_s,
    argMaxIf(toFloat64OrNull(SpanAttributes['evenkeel.cache.bound']), Timestamp,
        SpanAttributes['evenkeel.cache.bound'] != '') AS wrong_bound,
    argMaxIf(toFloat64OrNull(SpanAttributes['evenkeel.cache.limit']), Timestamp,
        SpanAttributes['evenkeel.cache.limit'] != '') AS wrong_limit
FROM spans
WHERE Timestamp >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND mapContains(SpanAttributes, 'evenkeel.response_cache')
GROUP BY mode, reason, verdict
ORDER BY num_requests DESC
LIMIT 40
