-- The bound on wrong near hits served by the response cache per interval, and its limit.
SELECT
    toStartOfInterval(Timestamp, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
    maxOrNull(toFloat64OrNull(SpanAttributes['evenkeel.cache.bound'])) AS wrong_bound,
    maxOrNull(toFloat64OrNull(SpanAttributes['evenkeel.cache.limit'])) AS wrong_limit
FROM spans
WHERE Timestamp >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND mapContains(SpanAttributes, 'evenkeel.cache.bound')
    AND SpanAttributes['evenkeel.response_cache'] IN ('semantic', 'replay')
GROUP BY bucket
ORDER BY bucket
