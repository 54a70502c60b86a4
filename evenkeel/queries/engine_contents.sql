-- What a replay of engines in a range has to read: seconds of their steps, requests that they served, and those
-- of a tenant. `num_sampled` are rows that stand for several requests.
SELECT
    (
        SELECT sum(engine_steps.busy_s)
        FROM engine_steps
        WHERE engine_steps.time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
            AND engine_steps.time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
            AND ({model:String} = '' OR engine_steps.model = {model:String})
    ) AS busy_s,
    count() AS num_requests,
    countIf(sample_weight > 1) AS num_sampled,
    countIf(ifNull(requests.tenant, '') = {tenant:String}) AS num_of_tenant
FROM requests
WHERE requests.time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND requests.time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND source = 'evenkeel'
    AND output_tokens > 0
    AND (isNull(engine_s) OR engine_s > 0)
