-- Time to first token by SLO class while requests queued, before and after control was switched from
-- watching to acting; `busy_s` are the starts of the intervals with a queue, Unix seconds.
SELECT
    ifNull(toString(slo_class), 'none') AS slo_class_name,
    time >= fromUnixTimestamp64Milli({switched_ms:Int64}, 'UTC') AS is_acting,
    sum(sample_weight) AS num_requests,
    quantileExactInclusiveOrNull(0.5)(ttft_s) AS p50_s,
    quantileExactInclusiveOrNull(0.95)(ttft_s) AS p95_s,
    sumIf(sample_weight, status = 'shed') AS num_shed
FROM requests
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND ({model:String} = '' OR model = {model:String})
    AND has({busy_s:Array(Int64)},
        toInt64(toUnixTimestamp(toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC'))))
GROUP BY slo_class_name, is_acting
ORDER BY slo_class_name, is_acting
LIMIT 40
