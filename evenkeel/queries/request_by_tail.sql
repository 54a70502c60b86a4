-- The id of the newest request of the last week whose id or trace id ends like this: tables show only the
-- end of an id.
SELECT request_id
FROM evenkeel.requests
WHERE time > now() - INTERVAL 7 DAY
    AND (endsWith(request_id, {tail:String}) OR endsWith(trace_id, {tail:String}))
ORDER BY time DESC
LIMIT 1
