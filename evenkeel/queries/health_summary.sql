-- The headline numbers of a range; a percentile or ratio of nothing is NULL.
SELECT
    sum(sample_weight) AS num_requests,
    sumIf(sample_weight, status = 'error') AS num_errors,
    sumIf(sample_weight, status = 'aborted') AS num_aborted,
    sumIf(sample_weight, status = 'shed') AS num_shed,
    num_requests / (({to_ms:Int64} - {from_ms:Int64}) / 1000) AS requests_per_s,
    sum(output_tokens * sample_weight) / (({to_ms:Int64} - {from_ms:Int64}) / 1000)
        AS output_tokens_per_s,
    num_errors / nullIf(num_requests, 0) AS error_ratio,
    num_aborted / nullIf(num_requests, 0) AS aborted_ratio,
    num_shed / nullIf(num_requests, 0) AS shed_ratio,
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
    toUnixTimestamp64Milli(maxOrNull(time)) AS newest_ms
FROM evenkeel.requests
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64})
  AND time < fromUnixTimestamp64Milli({to_ms:Int64})
  AND ({model:String} = '' OR model = {model:String})
  AND ({tenant:String} = '' OR tenant = {tenant:String})
  AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
  AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
