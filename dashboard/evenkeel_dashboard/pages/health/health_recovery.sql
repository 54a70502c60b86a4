-- When each SLO last burned its budget faster than it lasts, judged over its shortest window that had
-- events: the newest such evaluation of the day up to the end of a range.
SELECT
    slo,
    toUnixTimestamp64Milli(maxOrNullIf(slo_status.time, ifNull(recent_burn, 0) > 1)) AS burned_ms
FROM
(
    SELECT
        slo, slo_status.time AS time,
        arrayFirstOrNull(burn -> isNotNull(burn),
            arraySort((burn, length_s) -> length_s, windows.burn_short, windows.short_s)) AS recent_burn
    FROM evenkeel.slo_status
    WHERE time <= fromUnixTimestamp64Milli({to_ms:Int64})
      AND time > fromUnixTimestamp64Milli({to_ms:Int64} - 86400000)
) AS slo_status
GROUP BY slo
