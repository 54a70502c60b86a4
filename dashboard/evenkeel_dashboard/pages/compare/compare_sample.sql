-- A measure of a sample of a cohort's requests, chosen by the nanoseconds of their arrival, so that
-- every run returns the same sample. The chance of a request is proportional to its weight: the heaviest
-- are all there if the limit allows. (Ohlsson 1998, sequential Poisson sampling.)
-- The heaviest is looked for among the first only: if it is not one of them, all of these come before it,
-- and are in the sample.
SELECT value_s
FROM
(
    SELECT value_s, place, max(weight) OVER () AS heaviest
    FROM
    (
        SELECT
            multiIf({measure:String} = 'ttft', ttft_s, {measure:String} = 'tpot', tpot_s,
                {measure:String} = 'itl', itl_p99_s, {measure:String} = 'stall', stall_s,
                {measure:String} = 'queue', queue_s, e2e_s) AS value_s,
            if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1) AS weight,
            intHash64(toUnixTimestamp64Nano(time)) / weight AS place
        FROM requests
        WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
            AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
            AND ({model:String} = '' OR model = {model:String})
            AND ({tenant:String} = '' OR tenant = {tenant:String})
            AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
            AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
            AND ({service:String} = '' OR service = {service:String})
            AND ({engine:String} = '' OR engine = {engine:String})
            AND ({setup:String} = '' OR concat(ifNull(dtype, '?'), ', KV ', ifNull(kv_cache_dtype, '?'),
                ', TP ', ifNull(toString(tensor_parallel), '?'), ', PP ', ifNull(toString(pipeline_parallel), '?')) = {setup:String})
            AND isNotNull(value_s)
        ORDER BY place
        LIMIT {limit:UInt32}
    )
)
WHERE place * heaviest <= 18446744073709551615
ORDER BY place
