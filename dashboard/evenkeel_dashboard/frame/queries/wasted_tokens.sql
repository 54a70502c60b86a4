-- Tokens computed for nothing in a range, by cause, and all other tokens computed. Evicted prompt tokens
-- that were computed again are in the spans, the rest in the requests; nothing is computed for an answer
-- from the response cache. Only a slice of each period is read, and sums are scaled to the whole.
WITH if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1)
    * {period_s:UInt32} / {slice_s:UInt32} AS weight
SELECT
    sum(weight * ifNull(wasted_tokens, 0)) AS client_left,
    sum(weight * greatest(0, toInt64(ifNull(drafted_tokens, 0)) - toInt64(ifNull(accepted_tokens, 0))))
        AS rejected_drafts,
    sumIf(weight * ifNull(output_tokens, 0), status = 'error') AS failed,
    sumIf(weight * (ifNull(output_tokens, 0)
        + greatest(0, toInt64(ifNull(input_tokens, 0)) - toInt64(ifNull(cached_tokens, 0)))),
        ifNull(response_cache, '') NOT IN ('exact', 'semantic')) AS useful_and_failed,
    (
        WITH toFloat64OrZero(SpanAttributes['evenkeel.sample_weight']) AS span_weight
        SELECT sum(toUInt64OrZero(SpanAttributes['evenkeel.prefix.lost_tokens'])
            * if(span_weight BETWEEN 1 AND 1000000, span_weight, 1)) * {period_s:UInt32} / {slice_s:UInt32}
        FROM evenkeel.spans
        WHERE Timestamp >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
            AND Timestamp < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
            AND toUnixTimestamp(Timestamp) % {period_s:UInt32} < {slice_s:UInt32}
            AND mapContains(SpanAttributes, 'evenkeel.prefix.lost_tokens')
            AND ({model:String} = '' OR SpanAttributes['gen_ai.request.model'] = {model:String})
            AND ({tenant:String} = '' OR SpanAttributes['evenkeel.tenant'] = {tenant:String})
            AND ({prompt:String} = '' OR concat(SpanAttributes['evenkeel.prompt.name'], '@',
                SpanAttributes['evenkeel.prompt.version']) = {prompt:String})
            AND ({slo_class:String} = '' OR SpanAttributes['evenkeel.slo_class'] = {slo_class:String})
    ) AS evicted
FROM evenkeel.requests
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND toUnixTimestamp(time) % {period_s:UInt32} < {slice_s:UInt32}
    AND ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
