-- TPOT of a limited number of requests per model, with and without drafts, from a slice of each
-- period; every run returns the same sample.
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
    AND toUnixTimestamp(time) % {period_s:UInt32} < {slice_s:UInt32}
GROUP BY model, is_drafted
ORDER BY model, is_drafted
