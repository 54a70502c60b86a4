-- The headline numbers of a long range, from the minute rollup; percentiles are TDigest estimates.
SELECT
    sum(r.num_requests) AS num_requests,
    sum(r.num_error) AS num_errors,
    sum(r.num_aborted) AS num_aborted,
    sum(r.num_shed) AS num_shed,
    sum(r.num_requests) / (({to_ms:Int64} - {from_ms:Int64}) / 1000) AS requests_per_s,
    sum(r.output_tokens) / (({to_ms:Int64} - {from_ms:Int64}) / 1000) AS output_tokens_per_s,
    sum(r.num_error) / nullIf(sum(r.num_requests), 0) AS error_ratio,
    sum(r.num_aborted) / nullIf(sum(r.num_requests), 0) AS aborted_ratio,
    sum(r.num_shed) / nullIf(sum(r.num_requests), 0) AS shed_ratio,
    sum(r.cached_tokens) / nullIf(sum(r.cacheable_tokens), 0) AS cached_token_ratio,
    sum(r.accepted_tokens) / nullIf(sum(r.drafted_tokens), 0) AS acceptance_rate,
    quantilesTDigestMerge(0.5, 0.95, 0.99)(r.ttft_s) AS ttft,
    quantilesTDigestMerge(0.5, 0.95, 0.99)(r.itl_p99_s) AS itl_p99,
    quantilesTDigestMerge(0.5, 0.95, 0.99)(r.tpot_s) AS tpot,
    ttft[1] AS ttft_p50_s, ttft[2] AS ttft_p95_s, ttft[3] AS ttft_p99_s,
    itl_p99[1] AS itl_p99_p50_s, itl_p99[2] AS itl_p99_p95_s, itl_p99[3] AS itl_p99_p99_s,
    tpot[1] AS tpot_p50_s, tpot[2] AS tpot_p95_s, tpot[3] AS tpot_p99_s,
    toUnixTimestamp(maxOrNull(r.minute)) * 1000 AS newest_ms
FROM requests_rolled(from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64}, step_s = 3600) AS r
WHERE ({model:String} = '' OR model = {model:String})
  AND ({tenant:String} = '' OR tenant = {tenant:String})
  AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
  AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
