-- The series of a long range, from the minute rollup; a step is a whole number of minutes.
SELECT
    toStartOfInterval(r.minute, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
    greatest(1, least({step_s:UInt32}, {to_ms:Int64} / 1000 - toUnixTimestamp(bucket)))
        AS covered_s,
    sum(r.num_ok) / covered_s AS ok_per_s,
    sum(r.num_error) / covered_s AS errors_per_s,
    sum(r.num_aborted) / covered_s AS aborted_per_s,
    sum(r.num_shed) / covered_s AS shed_per_s,
    sum(r.input_tokens) / covered_s AS input_tokens_per_s,
    sum(r.output_tokens) / covered_s AS output_tokens_per_s,
    quantilesTDigestMerge(0.5, 0.95, 0.99)(r.ttft_s) AS ttft,
    quantilesTDigestMerge(0.5, 0.95, 0.99)(r.itl_p99_s) AS itl_p99,
    quantilesTDigestMerge(0.5, 0.95, 0.99)(r.tpot_s) AS tpot,
    ttft[1] AS ttft_p50_s, ttft[2] AS ttft_p95_s, ttft[3] AS ttft_p99_s,
    itl_p99[1] AS itl_p99_p50_s, itl_p99[2] AS itl_p99_p95_s, itl_p99[3] AS itl_p99_p99_s,
    tpot[1] AS tpot_p50_s, tpot[2] AS tpot_p95_s, tpot[3] AS tpot_p99_s,
    sum(r.cached_tokens) / nullIf(sum(r.cacheable_tokens), 0) AS cached_token_ratio,
    sum(r.accepted_tokens) / nullIf(sum(r.drafted_tokens), 0) AS acceptance_rate
FROM requests_rolled(from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64}, step_s = {step_s:UInt32}) AS r
WHERE ({model:String} = '' OR model = {model:String})
  AND ({tenant:String} = '' OR tenant = {tenant:String})
  AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
  AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
GROUP BY bucket
ORDER BY bucket
