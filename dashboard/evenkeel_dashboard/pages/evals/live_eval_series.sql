-- Weighted sums of a live evaluation's scores per interval, to estimate the share of all requests
-- answered right: each sampled request has weight 1 / its probability. `weight_squared` gives the
-- effective number of answers. One that a tenant's token sent is named with its tenant.
SELECT
    toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
    concat(live_evaluations.monitor, if(sender = '', '', concat(' (', sender, ')'))) AS monitor,
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
