-- The gates of the newest evaluation run within a span.
SELECT run_id, dataset, gate, slice, verdict, estimate, toUnixTimestamp64Nano(time) AS time_ns
FROM eval_results
WHERE kind = 'gate'
    AND time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
    AND run_id = (
        SELECT argMax(run_id, time)
        FROM eval_results
        WHERE kind = 'gate'
            AND time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
            AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
    )
ORDER BY gate, slice
