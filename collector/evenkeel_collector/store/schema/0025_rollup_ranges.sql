-- The rollups over a range in as few rows as it takes: whole hours from the hourly one where steps are
-- whole hours, all else from that of minutes. `minute` is the begin of either; ends are whole minutes.
CREATE VIEW IF NOT EXISTS requests_rolled AS
SELECT *
FROM requests_1m
WHERE minute >= toDateTime(intDiv({from_ms:Int64}, 1000), 'UTC')
    AND minute < toDateTime(intDiv({to_ms:Int64} + 999, 1000), 'UTC')
    AND ({step_s:UInt32} % 3600 != 0
        OR minute < toStartOfHour(toDateTime(intDiv({from_ms:Int64}, 1000) + 3599, 'UTC'))
        OR minute >= toStartOfHour(toDateTime(intDiv({to_ms:Int64}, 1000), 'UTC')))
UNION ALL
SELECT *
FROM requests_1h
WHERE {step_s:UInt32} % 3600 = 0
    AND hour >= toStartOfHour(toDateTime(intDiv({from_ms:Int64}, 1000) + 3599, 'UTC'))
    AND hour < toStartOfHour(toDateTime(intDiv({to_ms:Int64}, 1000), 'UTC'));
