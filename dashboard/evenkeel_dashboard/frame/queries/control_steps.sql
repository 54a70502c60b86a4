-- Actions of the runtime's controllers: spans named evenkeel.control…, newest first.
SELECT
    toUnixTimestamp64Milli(Timestamp) AS time_ms, SpanName AS name, ServiceName AS service,
    SpanAttributes AS attributes
FROM spans
WHERE Timestamp >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND startsWith(SpanName, 'evenkeel.control')
ORDER BY Timestamp DESC
LIMIT 50
