-- Response cache lookups over a range by outcome, without replays; no rows if it is off.
WITH if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1) AS weight
SELECT toString(assumeNotNull(response_cache)) AS outcome, sum(weight) AS num_requests
FROM requests
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
    AND isNotNull(response_cache) AND response_cache != 'replay'
GROUP BY outcome
ORDER BY num_requests DESC, outcome
