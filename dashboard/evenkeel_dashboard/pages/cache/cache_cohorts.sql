-- Prefix cache hits by cohort, and of all of them. Saved time is the number of cached tokens times the median
-- time per token in which the same model computed uncached ones; a model that computed none adds nothing.
-- Only a slice of each period is read, and sums are scaled to the whole. The evaluations' drift sentinel is
-- not user traffic: it shows only if chosen.
WITH rates AS
(
    SELECT
        model,
        quantileExactWeightedInterpolatedOrNullIf(0.5)(
            ifNull(prefill_s / nullIf(input_tokens - cached_tokens, 0), 0),
            toUInt32(round(if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1))),
            input_tokens > cached_tokens + 64 AND prefill_s > 0) AS token_s
    FROM requests
    WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
        AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
        AND toUnixTimestamp(time) % {period_s:UInt32} < {slice_s:UInt32}
    GROUP BY model
),
if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1)
    * {period_s:UInt32} / {slice_s:UInt32} AS weight
SELECT
    multiIf(
        {dimension:String} = 'tenant', ifNull(toString(tenant), 'none'),
        {dimension:String} = 'model', toString(requests.model),
        if(prompt_name IS NULL, 'none', concat(prompt_name, '@', ifNull(prompt_version, '?'))))
        AS cohort,
    sum(weight) AS num_requests,
    sum(input_tokens * weight) AS input_tokens_sum,
    sum(least(cached_tokens, input_tokens) * weight) AS cached_tokens_sum,
    cached_tokens_sum / nullIf(input_tokens_sum, 0) AS hit_ratio,
    sumIf(weight, cached_tokens = 0) AS num_cold,
    num_cold / nullIf(num_requests, 0) AS cold_ratio,
    sum(least(cached_tokens, input_tokens) * weight * token_s) AS saved_s,
    count() OVER () AS num_cohorts,
    sum(num_requests) OVER () AS all_requests,
    sum(num_cold) OVER () AS all_cold,
    sum(input_tokens_sum) OVER () AS all_input_tokens,
    sum(cached_tokens_sum) OVER () AS all_cached_tokens,
    sum(saved_s) OVER () AS all_saved_s
FROM requests
GLOBAL LEFT JOIN rates ON rates.model = requests.model
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND toUnixTimestamp(time) % {period_s:UInt32} < {slice_s:UInt32}
    AND ({model:String} = '' OR requests.model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
    AND ({prompt:String} != '' OR ifNull(prompt_name, '') != 'evenkeel-sentinel')
    AND isNotNull(cached_tokens) AND isNotNull(input_tokens)
GROUP BY cohort
ORDER BY saved_s DESC, cohort
LIMIT 30
