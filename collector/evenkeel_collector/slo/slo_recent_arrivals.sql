-- How many stored requests ended in each bucket of [from_ns, to_ns): rows that come late show here.
SELECT intDiv(end_ns, {width_ns:Int64}) AS bucket, count() AS num_requests
FROM
(
    -- As `slo_rows` has it.
    SELECT toInt64(toUnixTimestamp64Nano(time)
        + toInt64(ifNull(if(e2e_s BETWEEN 0 AND 1000000, e2e_s, 0), 0) * 1e9)) AS end_ns
    FROM requests
    WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64} - {max_request_ns:Int64}, 'UTC')
        AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
)
WHERE end_ns >= {from_ns:Int64} AND end_ns < {to_ns:Int64}
GROUP BY bucket
