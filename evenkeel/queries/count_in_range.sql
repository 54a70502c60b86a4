-- How many requests a range holds, from the minute rollup: what decides how a page reads them.
SELECT sum(num_requests) AS num_requests
FROM requests_rolled(from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64}, step_s = 3600)
WHERE ({model:String} = '' OR model = {model:String})
