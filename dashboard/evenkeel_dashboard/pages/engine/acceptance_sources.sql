-- Drafted and accepted tokens by draft source and position. Only a slice of each period is read,
-- which is enough for rates.
SELECT
    substring(key, length('evenkeel.drafted.') + 1) AS source,
    count() AS num_requests,
    sumForEach(JSONExtract(SpanAttributes[key], 'Array(UInt64)')) AS drafted_by_position,
    sumForEach(JSONExtract(SpanAttributes[concat('evenkeel.accepted.', source)], 'Array(UInt64)'))
        AS accepted_by_position
FROM spans
ARRAY JOIN arrayFilter(k -> startsWith(k, 'evenkeel.drafted.'), mapKeys(SpanAttributes)) AS key
WHERE Timestamp >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND toUnixTimestamp(Timestamp) % {period_s:UInt32} < {slice_s:UInt32}
    AND mapContains(SpanAttributes, 'evenkeel.drafted_tokens')
    AND ({model:String} = '' OR SpanAttributes['gen_ai.request.model'] = {model:String})
GROUP BY source
ORDER BY sum(arraySum(JSONExtract(SpanAttributes[key], 'Array(UInt64)'))) DESC, source
