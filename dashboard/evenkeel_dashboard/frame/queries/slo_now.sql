-- The newest evaluation of each SLO up to the end of a range. It is of the past (`stale`) if the next one
-- should have come long ago: after ten minutes, or three of the last interval, which is up to an hour.
SELECT
    toUnixTimestamp64Milli(newest.time) AS time_ms, slo, objective, threshold_s, target, period_s,
    calendar_period, scale, selector,
    3 * (time_ms - ifNull(before_ms, time_ms)) AS three_ms,
    if(time_ms + least(greatest(three_ms, 600000), 10800000) < {to_ms:Int64},
        'stale', toString(newest.state)) AS state,
    severity, good, total, sli,
    budget_left_ratio, windows.severity AS window_severity, windows.factor AS window_factor,
    windows.long_s AS window_long_s, windows.short_s AS window_short_s,
    windows.burn_long AS window_burn_long, windows.burn_short AS window_burn_short
FROM
(
    SELECT *, lagInFrame(toNullable(toUnixTimestamp64Milli(time)))
        OVER (PARTITION BY slo ORDER BY time ROWS BETWEEN 1 PRECEDING AND 1 PRECEDING) AS before_ms
    FROM
    (
        SELECT *
        FROM evenkeel.slo_status
        WHERE time <= fromUnixTimestamp64Milli({to_ms:Int64})
          AND time > fromUnixTimestamp64Milli({to_ms:Int64} - 86400000)
        ORDER BY slo, time DESC
        LIMIT 2 BY slo
    )
) AS newest
ORDER BY slo, time DESC
LIMIT 1 BY slo
