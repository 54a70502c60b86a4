-- Requests that were in an engine in a range, in the order of arrival; `time_s` is counted from `origin_ms`. Those
-- that the response cache answered, or that were refused, never were. A request takes an hour at most.
SELECT
    (toUnixTimestamp64Nano(requests.time) - {origin_ms:Int64} * 1000000) / 1e9 AS time_s,
    service,
    request_id,
    ifNull(requests.tenant, '') AS tenant,
    input_tokens,
    cached_tokens,
    output_tokens,
    drafted_tokens,
    accepted_tokens,
    ttft_s,
    e2e_s
FROM requests
WHERE requests.time >= fromUnixTimestamp64Milli({from_ms:Int64} - 3600000, 'UTC')
    AND requests.time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND toUnixTimestamp64Milli(requests.time) + ifNull(e2e_s, 0) * 1000 > {from_ms:Int64}
    AND source = 'evenkeel'
    AND output_tokens > 0
    AND (isNull(engine_s) OR engine_s > 0)
ORDER BY requests.time
