-- Valid and bad events of one SLO in buckets, from the hour rollup; no rows before counting started.
-- A group's events are those of its definition with the group's values.
SELECT
    toUInt32(0) AS slo,
    intDiv(toUnixTimestamp(hour), {width_s:UInt32}) AS bucket,
    sum(good + bad) AS total_sum,
    sum(bad) AS bad_sum
FROM slo_counts_1h AS c
WHERE c.slo = {slo_name:String}
    AND ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
    AND ({route:String} = '' OR route = {route:String})
    AND ({prompt_name:String} = '' OR prompt_name = {prompt_name:String})
    AND ({prompt_version:String} = '' OR prompt_version = {prompt_version:String})
    AND ({engine:String} = '' OR engine = {engine:String})
    AND hour >= toDateTime(intDiv({from_ms:Int64}, 1000))
    AND hour < toDateTime(intDiv({to_ms:Int64} + 999, 1000))
GROUP BY bucket
ORDER BY bucket
