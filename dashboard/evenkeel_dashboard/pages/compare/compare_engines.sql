-- The engines that served the requests of a range, most frequent first.
SELECT engine, count() AS num_requests
FROM requests
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND isNotNull(engine)
GROUP BY engine
ORDER BY num_requests DESC, engine
LIMIT 50
