-- Waiting requests per interval, by what blocked the queue, from the step records: means weighted by step
-- time and summed over engines, as in engine_steps_series.sql, so that the reasons are parts of its queue.
SELECT bucket, reason, sum(waiting_s / nullIf(stepped_s, 0)) AS num_waiting
FROM
(
    SELECT
        toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
        if(held_by = '', 'other', toString(held_by)) AS reason,
        sum(engine_steps.num_waiting * duration_s) AS waiting_s,
        sum(sum(duration_s)) OVER (PARTITION BY bucket, service, instance, engine) AS stepped_s
    FROM engine_steps
    WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
        AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
        AND ({model:String} = '' OR model = {model:String})
    GROUP BY bucket, service, instance, engine, reason
)
WHERE waiting_s > 0
GROUP BY bucket, reason
ORDER BY bucket, reason
