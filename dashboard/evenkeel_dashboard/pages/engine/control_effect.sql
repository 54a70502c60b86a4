-- Time to first token by SLO class while requests queued, before control was switched from watching
-- to acting and while it acted, which ends at `to_ms` at the latest; `busy_s` are the starts of the intervals with a queue, Unix seconds.
-- Quantiles with weights take several times as long, so they are computed only if a request weighs more
-- than 1: `is_sampled` is a constant.
WITH
    if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1) AS weight,
    (
        SELECT countIf(sample_weight > 1) > 0
        FROM requests
        WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
            AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    ) AS is_sampled
SELECT
    ifNull(toString(slo_class), 'none') AS slo_class_name,
    time >= fromUnixTimestamp64Milli({switched_ms:Int64}, 'UTC') AS is_acting,
    sum(weight) AS num_requests,
    if(is_sampled, quantileExactWeightedInterpolatedOrNull(0.5)(ttft_s, toUInt32(round(weight))),
        quantileExactInclusiveOrNull(0.5)(ttft_s)) AS p50_s,
    if(is_sampled, quantileExactWeightedInterpolatedOrNull(0.95)(ttft_s, toUInt32(round(weight))),
        quantileExactInclusiveOrNull(0.95)(ttft_s)) AS p95_s,
    sumIf(weight, isNotNull(ttft_s)) AS num_timed,
    sumIf(weight, status = 'shed') AS num_shed
FROM requests
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND ({model:String} = '' OR model = {model:String})
    AND has({busy_s:Array(Int64)},
        toInt64(toUnixTimestamp(toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC'))))
GROUP BY slo_class_name, is_acting
ORDER BY slo_class_name, is_acting
LIMIT 40
