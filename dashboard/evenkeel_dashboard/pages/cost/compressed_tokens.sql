-- Prompt tokens that compression saved, by model. Only a slice of each period is read, and sums are scaled to
-- the whole.
SELECT
    SpanAttributes['gen_ai.request.model'] AS model,
    sum(toUInt64OrZero(SpanAttributes['evenkeel.compression.saved_tokens']))
        * {period_s:UInt32} / {slice_s:UInt32} AS saved_tokens
FROM spans
WHERE Timestamp >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND toUnixTimestamp(Timestamp) % {period_s:UInt32} < {slice_s:UInt32}
    AND mapContains(SpanAttributes, 'evenkeel.compression.saved_tokens')
    AND ({model:String} = '' OR SpanAttributes['gen_ai.request.model'] = {model:String})
    AND ({tenant:String} = '' OR SpanAttributes['evenkeel.tenant'] = {tenant:String})
    AND ({prompt:String} = '' OR concat(SpanAttributes['evenkeel.prompt.name'], '@',
        SpanAttributes['evenkeel.prompt.version']) = {prompt:String})
    AND ({slo_class:String} = '' OR SpanAttributes['evenkeel.slo_class'] = {slo_class:String})
GROUP BY model
ORDER BY model
