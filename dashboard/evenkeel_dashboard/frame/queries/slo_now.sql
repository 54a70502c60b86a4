-- The newest evaluation of each SLO up to the end of a range. It is of the past (`stale`) if the next one
-- should have come long ago: after ten minutes, or three intervals, which are up to an hour. The interval is
-- the mean of the last four hours.
WITH
(
    SELECT greatest(600, least(3 * 14400 * uniq(slo) / greatest(count(), 1), 10800))
    FROM evenkeel.slo_status
    WHERE time <= fromUnixTimestamp64Milli({to_ms:Int64})
      AND time > fromUnixTimestamp64Milli({to_ms:Int64} - 14400000)
) AS patience_s
SELECT
    toUnixTimestamp64Milli(slo_status.time) AS time_ms, slo, objective, threshold_s, target, period_s,
    calendar_period, scale, selector,
    if(time_ms + 1000 * patience_s < {to_ms:Int64}, 'stale', toString(slo_status.state)) AS state,
    severity, good, total, sli,
    budget_left_ratio, windows.severity AS window_severity, windows.factor AS window_factor,
    windows.long_s AS window_long_s, windows.short_s AS window_short_s,
    windows.burn_long AS window_burn_long, windows.burn_short AS window_burn_short
FROM evenkeel.slo_status
WHERE time <= fromUnixTimestamp64Milli({to_ms:Int64})
  AND time > fromUnixTimestamp64Milli({to_ms:Int64} - 86400000)
ORDER BY slo, time DESC
LIMIT 1 BY slo
