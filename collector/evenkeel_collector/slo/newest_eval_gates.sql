-- The gates of the newest evaluation run within a span: of a tenant, or of none.
SELECT run_id, dataset, gate, slice, verdict, estimate, toUnixTimestamp64Nano(time) AS time_ns
FROM eval_results
WHERE kind = 'gate'
    AND time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
    AND attributes['evenkeel.tenant'] = {tenant:String}
    AND run_id = (
        SELECT argMax(run_id, time)
        FROM eval_results
        WHERE kind = 'gate'
            AND time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
            AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
            AND attributes['evenkeel.tenant'] = {tenant:String}
    )
ORDER BY gate, slice
