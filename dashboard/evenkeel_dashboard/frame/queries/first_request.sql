-- The minute of the oldest stored request; NULL without requests.
SELECT toUnixTimestamp(minOrNull(minute)) * 1000 AS first_ms
FROM requests_1m
