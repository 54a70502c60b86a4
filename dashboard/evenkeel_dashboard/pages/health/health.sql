-- The numbers of the health page in one scan: per step of a range (`bucket`, Unix seconds), for the
-- whole range (bucket 0), and for the previous range of the same length (`is_now` is 0, bucket 0).
-- Means of phases cover requests that got a token. A step without requests has no row; a percentile or
-- ratio without data is NULL. Rates divide by the part of a step inside the range, because the last
-- step is still filling.
SELECT
    part = 2 AS is_now,
    toUnixTimestamp(step) AS bucket,
    if(bucket = 0, ({to_ms:Int64} - {from_ms:Int64}) / 1000,
        greatest(1, least({step_s:UInt32}, {to_ms:Int64} / 1000 - bucket))) AS covered_s,
    sum(sample_weight) AS num_requests,
    num_requests / covered_s AS requests_per_s,
    sumIf(sample_weight, status = 'ok') / covered_s AS ok_per_s,
    sumIf(sample_weight, status = 'error') / covered_s AS errors_per_s,
    sumIf(sample_weight, status = 'aborted') / covered_s AS aborted_per_s,
    sumIf(sample_weight, status = 'shed') / covered_s AS shed_per_s,
    sumIf(sample_weight, status = 'error') / nullIf(num_requests, 0) AS error_ratio,
    sumIf(sample_weight, status = 'aborted') / nullIf(num_requests, 0) AS aborted_ratio,
    sumIf(sample_weight, status = 'shed') / nullIf(num_requests, 0) AS shed_ratio,
    sum(output_tokens * sample_weight) / covered_s AS output_tokens_per_s,
    sumIf(cached_tokens * sample_weight, isNotNull(input_tokens))
        / nullIf(sumIf(input_tokens * sample_weight, isNotNull(cached_tokens)), 0)
        AS cached_token_ratio,
    sum(accepted_tokens * sample_weight) / nullIf(sum(drafted_tokens * sample_weight), 0)
        AS acceptance_rate,
    quantileExactInclusiveOrNull(0.50)(ttft_s) AS ttft_p50_s,
    quantileExactInclusiveOrNull(0.95)(ttft_s) AS ttft_p95_s,
    quantileExactInclusiveOrNull(0.99)(ttft_s) AS ttft_p99_s,
    quantileExactInclusiveOrNull(0.50)(itl_p99_s) AS itl_p99_p50_s,
    quantileExactInclusiveOrNull(0.95)(itl_p99_s) AS itl_p99_p95_s,
    quantileExactInclusiveOrNull(0.99)(itl_p99_s) AS itl_p99_p99_s,
    quantileExactInclusiveOrNull(0.50)(tpot_s) AS tpot_p50_s,
    quantileExactInclusiveOrNull(0.95)(tpot_s) AS tpot_p95_s,
    quantileExactInclusiveOrNull(0.99)(tpot_s) AS tpot_p99_s,
    sumIf(sample_weight * queue_s, isNotNull(ttft_s))
        / nullIf(sumIf(sample_weight, isNotNull(ttft_s) AND isNotNull(queue_s)), 0) AS queue_mean_s,
    sumIf(sample_weight * prefill_s, isNotNull(ttft_s))
        / nullIf(sumIf(sample_weight, isNotNull(ttft_s) AND isNotNull(prefill_s)), 0) AS prefill_mean_s,
    sumIf(sample_weight * decode_s, isNotNull(ttft_s))
        / nullIf(sumIf(sample_weight, isNotNull(ttft_s) AND isNotNull(decode_s)), 0) AS decode_mean_s,
    toUnixTimestamp64Milli(maxOrNull(time)) AS newest_ms
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
