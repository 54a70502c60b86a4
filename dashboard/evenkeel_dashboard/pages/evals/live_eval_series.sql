-- How many of all requests a live evaluation found right, by step of time: each drawn request stands
-- for 1 / its probability. `num_effective` is how many equally weighted answers would say as much.
SELECT
    toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
    monitor,
    scorer,
    countIf(label != 'unscored') AS num_scored,
    countIf(label = 'unscored') AS num_unscored,
    sumIf(1 / probability, label != 'unscored') AS weight,
    sumIf(1 / probability, label = 'right') AS weight_right,
    sumIf(1 / (probability * probability), label != 'unscored') AS weight_squared
FROM live_evaluations
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND probability > 0
GROUP BY bucket, monitor, scorer
ORDER BY monitor, scorer, bucket
