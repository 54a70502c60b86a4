-- As health_percentiles_1m.sql, for steps of whole hours: from the hour rollup, plus the partial hours
-- at both ends.
SELECT
    part = 2 AS is_now,
    toUnixTimestamp(step) AS bucket,
    quantilesTDigestMerge(0.5, 0.95, 0.99)(r.ttft_s) AS ttft,
    quantilesTDigestMerge(0.5, 0.95, 0.99)(r.itl_p99_s) AS itl_p99,
    quantilesTDigestMerge(0.5, 0.95, 0.99)(r.tpot_s) AS tpot,
    ttft[1] AS ttft_p50_s, ttft[2] AS ttft_p95_s, ttft[3] AS ttft_p99_s,
    itl_p99[1] AS itl_p99_p50_s, itl_p99[2] AS itl_p99_p95_s, itl_p99[3] AS itl_p99_p99_s,
    tpot[1] AS tpot_p50_s, tpot[2] AS tpot_p95_s, tpot[3] AS tpot_p99_s
FROM requests_rolled(
    from_ms = {before_ms:Int64}, to_ms = {to_ms:Int64}, step_s = {step_s:UInt32}) AS r
WHERE ({model:String} = '' OR model = {model:String})
  AND ({tenant:String} = '' OR tenant = {tenant:String})
  AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
  AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
GROUP BY
    if(r.minute < toDateTime(intDiv({from_ms:Int64}, 1000), 'UTC'), 1, 2) AS part,
    if(part = 1, toDateTime(1, 'UTC'),
        toStartOfInterval(r.minute, toIntervalSecond({step_s:UInt32}), 'UTC')) AS step
WITH ROLLUP
HAVING part = 2 OR (part = 1 AND bucket = 0)
ORDER BY is_now, bucket
