-- Prompt versions in use over a range: traffic, latency and failures of each, newest first. Of those that
-- were in use in its first hour, the highest number is the newest: 10 after 9. Which of them had its first
-- request there is chance.
-- What evaluations ask is not user traffic. The mean output is that of requests that got
-- tokens: shed and cached ones have none. What reports no phases counts its successful requests instead.
SELECT
    prompt_name, prompt_version,
    toUnixTimestamp(min(r.minute)) * 1000 AS first_ms,
    toUnixTimestamp(max(r.minute)) * 1000 AS last_ms,
    sum(r.num_requests) AS num_requests,
    quantilesTDigestMerge(0.5, 0.95, 0.99)(r.ttft_s) AS ttft,
    quantilesTDigestMerge(0.5, 0.95, 0.99)(r.e2e_s) AS e2e,
    ttft[2] AS ttft_p95_s, e2e[2] AS e2e_p95_s,
    sum(r.num_error) / nullIf(num_requests, 0) AS error_ratio,
    sum(r.output_tokens) / nullIf(
        sumIf(if(r.num_decode > 0, r.num_decode, r.num_ok), isNotNull(r.output_tokens)), 0
    ) AS output_tokens_mean,
    count() OVER () AS num_versions
FROM requests_1m AS r
WHERE minute >= toDateTime(intDiv({from_ms:Int64}, 1000))
    AND minute < toDateTime(intDiv({to_ms:Int64} + 999, 1000))
    AND ({model:String} = '' OR model = {model:String})
    AND prompt_name NOT IN ('', 'evenkeel-sentinel')
    AND route != 'eval'
GROUP BY prompt_name, prompt_version
ORDER BY prompt_name, greatest(first_ms, {from_ms:Int64} + 3600000) DESC,
    length(prompt_version) DESC, prompt_version DESC
LIMIT 400
