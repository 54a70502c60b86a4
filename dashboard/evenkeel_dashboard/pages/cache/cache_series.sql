-- Cache hits per interval: input tokens from the prefix cache, answers from the response cache by
-- layer. A ratio with denominator 0 is NULL. Only a slice of each period is read.
WITH if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1) AS weight
SELECT
    toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
    sumIf(least(cached_tokens, input_tokens) * weight, isNotNull(cached_tokens))
        / nullIf(sumIf(input_tokens * weight, isNotNull(cached_tokens)), 0) AS prefix_ratio,
    sumIf(least(cached_tokens, input_tokens) * weight,
        isNotNull(cached_tokens) AND isNotNull(session_id))
        / nullIf(sumIf(input_tokens * weight,
            isNotNull(cached_tokens) AND isNotNull(session_id)), 0) AS session_ratio,
    sumIf(weight, response_cache = 'exact')
        / nullIf(sumIf(weight, isNotNull(response_cache)), 0) AS exact_ratio,
    sumIf(weight, response_cache = 'semantic')
        / nullIf(sumIf(weight, isNotNull(response_cache)), 0) AS semantic_ratio,
    sumIf(weight, response_cache = 'verified')
        / nullIf(sumIf(weight, isNotNull(response_cache)), 0) AS verified_ratio
FROM requests
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND toUnixTimestamp(time) % {period_s:UInt32} < {slice_s:UInt32}
    AND ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
GROUP BY bucket
ORDER BY bucket
