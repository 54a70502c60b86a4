-- TPOT of up to so many requests of each model with drafts, and without: the same at every reading.
SELECT
    model,
    groupArraySorted({limit:UInt32})((intHash64(toUnixTimestamp64Nano(time)), tpot_s)) AS sampled,
    arrayMap(pair -> assumeNotNull(pair.2), sampled) AS tpot_s_each,
    ifNull(r.drafted_tokens, 0) > 0 AS is_drafted
FROM requests AS r
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND ({model:String} = '' OR model = {model:String})
    AND isNotNull(tpot_s) AND output_tokens > 1
    AND intHash64(toUnixTimestamp64Nano(time)) % {one_in:UInt32} = 0
GROUP BY model, is_drafted
ORDER BY model, is_drafted
