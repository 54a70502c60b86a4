-- How many requests that began in each five minutes of some days are stored: rows that come long
-- after their time show here.
SELECT
    toInt64(toUnixTimestamp(toStartOfFiveMinutes(time))) * 1000000000 AS from_ns,
    count() AS num_requests
FROM requests
WHERE toDate(time) IN {days:Array(Date)}
    AND time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
GROUP BY from_ns
