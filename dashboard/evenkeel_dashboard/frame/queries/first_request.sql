-- When the oldest stored requests came: their minute, or their hour if only the hour rollup still has them;
-- NULL without requests.
SELECT toUnixTimestamp(
    if(first_minute IS NULL OR first_hour < toStartOfHour(first_minute), first_hour, first_minute)) * 1000
    AS first_ms
FROM
(
    SELECT
        (SELECT minOrNull(minute) FROM requests_1m) AS first_minute,
        (SELECT minOrNull(hour) FROM requests_1h) AS first_hour
)
