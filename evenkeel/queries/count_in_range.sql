-- How many requests a range holds, from the minute rollup: what decides how a page reads them.
SELECT sum(num_requests) AS num_requests
FROM requests_1m
WHERE minute >= toDateTime(intDiv({from_ms:Int64}, 1000))
    AND minute < toDateTime(intDiv({to_ms:Int64} + 999, 1000))
    AND ({model:String} = '' OR model = {model:String})
