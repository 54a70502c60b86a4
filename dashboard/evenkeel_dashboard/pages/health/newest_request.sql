-- Arrival of the newest request in the store up to now, and of the newest after it, whose sender's
-- clock is ahead; NULL if there is none.
SELECT
    toUnixTimestamp64Milli(maxOrNullIf(time, time <= fromUnixTimestamp64Milli({now_ms:Int64})))
        AS newest_ms,
    toUnixTimestamp64Milli(maxOrNullIf(time, time > fromUnixTimestamp64Milli({now_ms:Int64})))
        AS ahead_ms
FROM evenkeel.requests
