-- Why prompts missed the prefix cache, by prompt and cause. Only a slice of each period is read, and
-- counts are scaled to the whole. Unstable tokens are static tokens after changing text.
SELECT
    if(SpanAttributes['evenkeel.prompt.name'] = '', 'none', concat(SpanAttributes['evenkeel.prompt.name'],
        '@', SpanAttributes['evenkeel.prompt.version'])) AS prompt,
    SpanAttributes['evenkeel.prefix.miss'] AS miss,
    {period_s:UInt32} / {slice_s:UInt32} AS weight,
    count() * weight AS num_requests,
    sum(toUInt64OrZero(SpanAttributes['evenkeel.prefix.missed_tokens'])) * weight AS missed_tokens,
    sum(toUInt64OrZero(SpanAttributes['evenkeel.prefix.lost_tokens'])) * weight AS lost_tokens,
    sum(toUInt64OrZero(SpanAttributes['evenkeel.prefix.unstable_tokens'])) * weight AS unstable_tokens,
    countIf(SpanAttributes['evenkeel.prefix.unstable_tokens'] != '') * weight AS num_unstable,
    sum(toFloat64OrZero(SpanAttributes['evenkeel.prefix.cost_s'])) * weight AS cost_s,
    quantileExactInclusiveIf(0.5)(toUInt64OrZero(SpanAttributes['evenkeel.prefix.diverged_at']),
        SpanAttributes['evenkeel.prefix.unstable_tokens'] != '') AS diverged_at,
    argMax(SpanAttributes['evenkeel.request.id'],
        toUInt64OrZero(SpanAttributes['evenkeel.prefix.missed_tokens'])) AS example_id
FROM spans
WHERE Timestamp >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND toUnixTimestamp(Timestamp) % {period_s:UInt32} < {slice_s:UInt32}
    AND mapContains(SpanAttributes, 'evenkeel.prefix.miss')
    AND ({model:String} = '' OR SpanAttributes['gen_ai.request.model'] = {model:String})
    AND ({tenant:String} = '' OR SpanAttributes['evenkeel.tenant'] = {tenant:String})
    AND ({prompt:String} = '' OR concat(SpanAttributes['evenkeel.prompt.name'], '@',
        SpanAttributes['evenkeel.prompt.version']) = {prompt:String})
    AND ({slo_class:String} = '' OR SpanAttributes['evenkeel.slo_class'] = {slo_class:String})
GROUP BY prompt, miss
ORDER BY cost_s DESC, prompt, miss
LIMIT 200
