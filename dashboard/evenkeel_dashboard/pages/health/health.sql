-- The numbers of the health page in one scan: per step of a range (`bucket`, Unix seconds), for the
-- whole range (bucket 0), and for the previous range of the same length (`is_now` is 0, bucket 0).
-- Means of phases cover requests that got a token. A step without requests has no row; a percentile or
-- ratio without data is NULL. Rates divide by the part of a step inside the range: the first one begins
-- before it, and the last one is still filling; those of a range by its part since the stored data starts.
-- Quantiles with weights take several times as long, so they are computed only if a request weighs more
-- than 1: `is_sampled` is a constant.
WITH
    if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1) AS weight,
    (
        SELECT countIf(sample_weight > 1) > 0
        FROM requests
        WHERE time >= fromUnixTimestamp64Milli(2 * {from_ms:Int64} - {to_ms:Int64}, 'UTC')
            AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    ) AS is_sampled
SELECT
    part = 2 AS is_now,
    toUnixTimestamp(step) AS bucket,
    greatest(1, multiIf(
        bucket > 0, least(toFloat64(bucket) + {step_s:UInt32}, {to_ms:Int64} / 1000)
            - greatest(toFloat64(bucket), {from_ms:Int64} / 1000),
        is_now, ({to_ms:Int64} - greatest({from_ms:Int64}, {data_from_ms:Int64})) / 1000,
        ({from_ms:Int64} - greatest(2 * {from_ms:Int64} - {to_ms:Int64}, {data_from_ms:Int64})) / 1000
    )) AS covered_s,
    sum(weight) AS num_requests,
    num_requests / covered_s AS requests_per_s,
    sumIf(weight, status = 'ok') / covered_s AS ok_per_s,
    sumIf(weight, status = 'error') / covered_s AS errors_per_s,
    sumIf(weight, status = 'aborted') / covered_s AS aborted_per_s,
    sumIf(weight, status = 'shed') / covered_s AS shed_per_s,
    sumIf(weight, status = 'error') / nullIf(num_requests, 0) AS error_ratio,
    sumIf(weight, status = 'aborted') / nullIf(num_requests, 0) AS aborted_ratio,
    sumIf(weight, status = 'shed') / nullIf(num_requests, 0) AS shed_ratio,
    sum(output_tokens * weight) / covered_s AS output_tokens_per_s,
    sumIf(cached_tokens * weight, isNotNull(input_tokens))
        / nullIf(sumIf(input_tokens * weight, isNotNull(cached_tokens)), 0)
        AS cached_token_ratio,
    sum(accepted_tokens * weight) / nullIf(sum(drafted_tokens * weight), 0)
        AS acceptance_rate,
    arrayMap(value -> if(isNaN(value), NULL, value), if(is_sampled,
        quantilesExactWeightedInterpolated(0.5, 0.95, 0.99)(ttft_s, toUInt32(round(weight))),
        quantilesExactInclusive(0.5, 0.95, 0.99)(ttft_s))) AS ttft,
    ttft[1] AS ttft_p50_s, ttft[2] AS ttft_p95_s, ttft[3] AS ttft_p99_s,
    arrayMap(value -> if(isNaN(value), NULL, value), if(is_sampled,
        quantilesExactWeightedInterpolated(0.5, 0.95, 0.99)(itl_p99_s, toUInt32(round(weight))),
        quantilesExactInclusive(0.5, 0.95, 0.99)(itl_p99_s))) AS itl_p99,
    itl_p99[1] AS itl_p99_p50_s, itl_p99[2] AS itl_p99_p95_s, itl_p99[3] AS itl_p99_p99_s,
    arrayMap(value -> if(isNaN(value), NULL, value), if(is_sampled,
        quantilesExactWeightedInterpolated(0.5, 0.95, 0.99)(tpot_s, toUInt32(round(weight))),
        quantilesExactInclusive(0.5, 0.95, 0.99)(tpot_s))) AS tpot,
    tpot[1] AS tpot_p50_s, tpot[2] AS tpot_p95_s, tpot[3] AS tpot_p99_s,
    sumIf(weight * queue_s, isNotNull(ttft_s))
        / nullIf(sumIf(weight, isNotNull(ttft_s) AND isNotNull(queue_s)), 0) AS queue_mean_s,
    sumIf(weight * prefill_s, isNotNull(ttft_s))
        / nullIf(sumIf(weight, isNotNull(ttft_s) AND isNotNull(prefill_s)), 0) AS prefill_mean_s,
    sumIf(weight * decode_s, isNotNull(ttft_s))
        / nullIf(sumIf(weight, isNotNull(ttft_s) AND isNotNull(decode_s)), 0) AS decode_mean_s
FROM evenkeel.requests
WHERE time >= fromUnixTimestamp64Milli(2 * {from_ms:Int64} - {to_ms:Int64})
  AND time < fromUnixTimestamp64Milli({to_ms:Int64})
  AND ({model:String} = '' OR model = {model:String})
  AND ({tenant:String} = '' OR tenant = {tenant:String})
  AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
  AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
GROUP BY
    if(time < fromUnixTimestamp64Milli({from_ms:Int64}), 1, 2) AS part,
    if(part = 1, toDateTime(1, 'UTC'),
        toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC')) AS step
WITH ROLLUP
HAVING part = 2 OR (part = 1 AND bucket = 0)
ORDER BY is_now, bucket
