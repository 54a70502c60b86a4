-- What rules are about, of the requests that ended in buckets of width_ns from from_ns on, one row a
-- bucket. What nothing was measured for is NULL. Requests are weighted.
-- Quantiles with weights take several times as long, so they are computed only if a request weighs more
-- than 1: `is_sampled` is a constant.
WITH
    toUInt32(round(sample_weight)) AS whole_weight,
    (
        SELECT countIf(sample_weight > 1) > 0
        FROM requests
        WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64} - {max_request_ns:Int64}, 'UTC')
            AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
    ) AS is_sampled
SELECT
    intDiv(end_ns - {from_ns:Int64}, {width_ns:Int64}) AS bucket,
    sum(sample_weight) AS requests,
    if(is_sampled, quantileExactWeightedOrNull(0.5)(ttft_s, whole_weight),
        quantileExactOrNull(0.5)(ttft_s)) AS ttft_p50_s,
    if(is_sampled, quantileExactWeightedOrNull(0.95)(ttft_s, whole_weight),
        quantileExactOrNull(0.95)(ttft_s)) AS ttft_p95_s,
    if(is_sampled, quantileExactWeightedOrNull(0.99)(ttft_s, whole_weight),
        quantileExactOrNull(0.99)(ttft_s)) AS ttft_p99_s,
    if(is_sampled, quantileExactWeightedOrNull(0.95)(tpot_s, whole_weight),
        quantileExactOrNull(0.95)(tpot_s)) AS tpot_p95_s,
    if(is_sampled, quantileExactWeightedOrNull(0.99)(itl_p99_s, whole_weight),
        quantileExactOrNull(0.99)(itl_p99_s)) AS itl_p99_s,
    if(is_sampled, quantileExactWeightedOrNull(0.99)(stall_s, whole_weight),
        quantileExactOrNull(0.99)(stall_s)) AS stall_p99_s,
    if(is_sampled, quantileExactWeightedOrNull(0.95)(queue_s, whole_weight),
        quantileExactOrNull(0.95)(queue_s)) AS queue_p95_s,
    if(is_sampled, quantileExactWeightedOrNull(0.5)(e2e_s, whole_weight),
        quantileExactOrNull(0.5)(e2e_s)) AS e2e_p50_s,
    if(is_sampled, quantileExactWeightedOrNull(0.95)(e2e_s, whole_weight),
        quantileExactOrNull(0.95)(e2e_s)) AS e2e_p95_s,
    if(is_sampled, quantileExactWeightedOrNull(0.99)(e2e_s, whole_weight),
        quantileExactOrNull(0.99)(e2e_s)) AS e2e_p99_s,
    1 / if(is_sampled, quantileExactWeightedOrNull(0.5)(nullIf(tpot_s, 0), whole_weight),
        quantileExactOrNull(0.5)(nullIf(tpot_s, 0))) AS output_tokens_per_s_p50,
    sumIf(sample_weight, status = 'error') / requests AS error_ratio,
    sumIf(sample_weight, status = 'aborted') / requests AS aborted_ratio,
    sumIf(sample_weight, status = 'aborted' AND ttft_s IS NULL) / requests AS abandoned_ratio,
    sumOrNullIf(least(cached_tokens, input_tokens) * sample_weight, cached_tokens IS NOT NULL)
        / sumIf(input_tokens * sample_weight, cached_tokens IS NOT NULL) AS prefix_hit_ratio,
    sumOrNullIf(
        least(cached_tokens, input_tokens) * sample_weight,
        cached_tokens IS NOT NULL AND session_id IS NOT NULL
    ) / sumIf(input_tokens * sample_weight, cached_tokens IS NOT NULL AND session_id IS NOT NULL)
        AS session_hit_ratio,
    sumOrNullIf(accepted_tokens * sample_weight, drafted_tokens > 0)
        / sumIf(drafted_tokens * sample_weight, drafted_tokens > 0) AS acceptance_ratio,
    -- Every verify step that drafted at all drafted a first position.
    sumOrNullIf(accepted_tokens * sample_weight, notEmpty(drafted_by_position))
        / sumIf(drafted_by_position[1] * sample_weight, notEmpty(drafted_by_position))
        AS accepted_tokens_per_step
FROM
(
    SELECT * REPLACE (if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1) AS sample_weight),
        toUnixTimestamp64Nano(time) + toInt64(ifNull(if(e2e_s BETWEEN 0 AND 1000000, e2e_s, 0), 0) * 1e9) AS end_ns
    FROM requests
    WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64} - {max_request_ns:Int64}, 'UTC')
        AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
        AND ({model:String} = '' OR model = {model:String})
        AND ({tenant:String} = '' OR tenant = {tenant:String})
        AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
        AND ({route:String} = '' OR route = {route:String})
        AND ({prompt_name:String} = '' OR prompt_name = {prompt_name:String})
        AND ({prompt_version:String} = '' OR prompt_version = {prompt_version:String})
        AND ({engine:String} = '' OR engine = {engine:String})
)
WHERE end_ns >= {from_ns:Int64} AND end_ns < {to_ns:Int64}
GROUP BY bucket
ORDER BY bucket
