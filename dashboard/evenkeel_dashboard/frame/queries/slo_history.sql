-- How close each SLO came to alerting, by step: the largest burn rate of any window pair as a share
-- of the factor at which that pair alerts. 1 or more alerts, if the short window agrees.
SELECT
    slo,
    toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
    maxOrNull(arrayMax(arrayMap(
        (burn, factor) -> ifNull(burn, 0) / factor, windows.burn_long, windows.factor)))
        AS alert_share
FROM evenkeel.slo_status
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64})
  AND time < fromUnixTimestamp64Milli({to_ms:Int64})
  AND state NOT IN ('no_data', 'unknown')
GROUP BY slo, bucket
ORDER BY slo, bucket
