-- Drafted and accepted tokens by draft position, from the requests; [] without speculation. Only a
-- slice of each period is read, which is enough for rates.
SELECT
    sumForEach(r.drafted_by_position) AS drafted_by_position,
    sumForEach(r.accepted_by_position) AS accepted_by_position,
    sum(r.drafted_tokens) AS drafted_tokens,
    sum(r.accepted_tokens) AS accepted_tokens
FROM requests AS r
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND toUnixTimestamp(time) % {period_s:UInt32} < {slice_s:UInt32}
    AND ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
    AND notEmpty(r.drafted_by_position)
