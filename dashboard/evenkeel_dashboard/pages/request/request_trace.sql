-- When a trace began, and how long its spans last: for a trace of which no request is stored (yet).
SELECT
    toUnixTimestamp64Milli(min(Timestamp)) AS from_ms,
    toUnixTimestamp64Milli(max(Timestamp)) AS to_ms,
    count() AS num_spans
FROM evenkeel.spans
WHERE TraceId = {trace_id:String}
  AND ({near_ms:Int64} = 0
       OR Timestamp BETWEEN fromUnixTimestamp64Milli({near_ms:Int64} - 1800000)
               AND fromUnixTimestamp64Milli({near_ms:Int64} + 1800000))
HAVING num_spans > 0
