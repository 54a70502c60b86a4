-- Waiting requests per interval, by what blocked the queue, from the step records.
WITH
    toFloat64(toUnixTimestamp(bucket)) AS begin_s,
    greatest(1, least(begin_s + {step_s:UInt32}, {to_ms:Int64} / 1000)
        - greatest(begin_s, {from_ms:Int64} / 1000)) AS covered_s
SELECT
    toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
    if(held_by = '', 'other', toString(held_by)) AS reason,
    sum(engine_steps.num_waiting * duration_s) / covered_s AS num_waiting
FROM engine_steps
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND ({model:String} = '' OR model = {model:String})
    AND engine_steps.num_waiting > 0
GROUP BY bucket, reason
ORDER BY bucket, reason
