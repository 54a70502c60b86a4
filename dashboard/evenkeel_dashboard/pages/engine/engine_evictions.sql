-- Cost of evicting prefix-cache blocks per interval: prompt tokens that were cached before and had to
-- be recomputed. Only a slice of each period is read, and sums are scaled to the whole.
SELECT
    toStartOfInterval(Timestamp, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
    sum(toUInt64OrZero(SpanAttributes['evenkeel.prefix.lost_tokens'])) AS evicted_tokens,
    countIf(SpanAttributes['evenkeel.prefix.lost_tokens'] != '') AS num_evicted
FROM spans
WHERE Timestamp >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND toUnixTimestamp(Timestamp) % {period_s:UInt32} < {slice_s:UInt32}
    AND mapContains(SpanAttributes, 'evenkeel.prefix.miss')
    AND ({model:String} = '' OR SpanAttributes['gen_ai.request.model'] = {model:String})
GROUP BY bucket
ORDER BY bucket
