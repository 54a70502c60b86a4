-- The same numbers by step, from the requests themselves; a step without requests has NULLs.
-- Rates divide by the part of the step that lies in the range: the last step is still filling.
SELECT
    toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
    greatest(1, least({step_s:UInt32}, {to_ms:Int64} / 1000 - toUnixTimestamp(bucket)))
        AS covered_s,
    sumIf(sample_weight, status = 'ok') / covered_s AS ok_per_s,
    sumIf(sample_weight, status = 'error') / covered_s AS errors_per_s,
    sumIf(sample_weight, status = 'aborted') / covered_s AS aborted_per_s,
    sumIf(sample_weight, status = 'shed') / covered_s AS shed_per_s,
    sum(input_tokens * sample_weight) / covered_s AS input_tokens_per_s,
    sum(output_tokens * sample_weight) / covered_s AS output_tokens_per_s,
    quantileExactInclusiveOrNull(0.50)(ttft_s) AS ttft_p50_s,
    quantileExactInclusiveOrNull(0.95)(ttft_s) AS ttft_p95_s,
    quantileExactInclusiveOrNull(0.99)(ttft_s) AS ttft_p99_s,
    quantileExactInclusiveOrNull(0.50)(itl_p99_s) AS itl_p99_p50_s,
    quantileExactInclusiveOrNull(0.95)(itl_p99_s) AS itl_p99_p95_s,
    quantileExactInclusiveOrNull(0.99)(itl_p99_s) AS itl_p99_p99_s,
    quantileExactInclusiveOrNull(0.50)(tpot_s) AS tpot_p50_s,
    quantileExactInclusiveOrNull(0.95)(tpot_s) AS tpot_p95_s,
    quantileExactInclusiveOrNull(0.99)(tpot_s) AS tpot_p99_s,
    sumIf(cached_tokens * sample_weight, isNotNull(input_tokens))
        / nullIf(sumIf(input_tokens * sample_weight, isNotNull(cached_tokens)), 0)
        AS cached_token_ratio,
    sum(accepted_tokens * sample_weight) / nullIf(sum(drafted_tokens * sample_weight), 0)
        AS acceptance_rate
FROM evenkeel.requests
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64})
  AND time < fromUnixTimestamp64Milli({to_ms:Int64})
  AND ({model:String} = '' OR model = {model:String})
  AND ({tenant:String} = '' OR tenant = {tenant:String})
  AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
  AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
GROUP BY bucket
ORDER BY bucket
