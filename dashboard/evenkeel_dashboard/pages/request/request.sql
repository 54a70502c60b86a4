-- One request, by its id or its trace's; the newest when a caller reused an id.
-- near_ms is its arrival, when the link knows it, so that one hour is read and not all time.
SELECT *, toUnixTimestamp64Nano(time) AS time_ns
FROM evenkeel.requests
WHERE (request_id = {id:String} OR trace_id = {id:String})
  AND ({near_ms:Int64} = 0
       OR time BETWEEN fromUnixTimestamp64Milli({near_ms:Int64} - 1800000)
               AND fromUnixTimestamp64Milli({near_ms:Int64} + 1800000))
ORDER BY time DESC
LIMIT 1
