-- One request, by its id or its trace id; if a caller reused an id, the nearest to near_ms, or the newest.
-- near_ms is its arrival if the link has it, so that the query reads one hour instead of all time.
SELECT *, toUnixTimestamp64Nano(time) AS time_ns
FROM evenkeel.requests
WHERE (request_id = {id:String} OR trace_id = {id:String})
  AND ({near_ms:Int64} = 0
       OR time BETWEEN fromUnixTimestamp64Milli({near_ms:Int64} - 1800000)
               AND fromUnixTimestamp64Milli({near_ms:Int64} + 1800000))
ORDER BY if({near_ms:Int64} = 0, 0, abs(toUnixTimestamp64Milli(time) - {near_ms:Int64})), time DESC
LIMIT 1
