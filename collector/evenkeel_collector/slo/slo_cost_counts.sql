-- A budget in money as events, in buckets of width_ns: what each bucket may cost is its events, and what it
-- cost is the bad ones. Costs are known by the minute, and belong to the bucket in which it begins.
SELECT bucket, every.total AS total_sum, costs.bad AS bad_sum
FROM
(
    SELECT
        intDiv({from_ns:Int64}, {width_ns:Int64}) + toInt64(number) AS bucket,
        {budget_per_s:Float64} / 1e9 * (least((bucket + 1) * {width_ns:Int64}, {to_ns:Int64})
            - greatest(bucket * {width_ns:Int64}, {from_ns:Int64})) AS total
    FROM numbers(toUInt64(intDiv({to_ns:Int64} - 1, {width_ns:Int64})
        - intDiv({from_ns:Int64}, {width_ns:Int64}) + 1))
) AS every
LEFT JOIN
(
    SELECT
        intDiv(toInt64(toUnixTimestamp(minute)) * 1000000000, {width_ns:Int64}) AS bucket,
        sum(cost) AS bad
    FROM requests_1m
    WHERE minute >= toDateTime(intDiv({from_ns:Int64}, 1000000000), 'UTC')
        AND minute < toDateTime(intDiv({to_ns:Int64} + 999999999, 1000000000), 'UTC')
        AND ({model:String} = '' OR model = {model:String})
        AND ({tenant:String} = '' OR tenant = {tenant:String})
        AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
        AND ({route:String} = '' OR route = {route:String})
        AND ({prompt_name:String} = '' OR prompt_name = {prompt_name:String})
        AND ({prompt_version:String} = '' OR prompt_version = {prompt_version:String})
        AND ({engine:String} = '' OR engine = {engine:String})
        AND arrayAll(
            (column, pattern, excludes) -> match(multiIf(
                column = 'model', toString(model), column = 'tenant', toString(tenant),
                column = 'slo_class', toString(slo_class), column = 'route', toString(route),
                column = 'prompt_name', toString(prompt_name),
                column = 'prompt_version', toString(prompt_version), toString(engine)
            ), pattern) != excludes,
            {filter_column:Array(String)}, {filter_pattern:Array(String)},
            {filter_excludes:Array(UInt8)}
        )
    GROUP BY bucket
) AS costs USING bucket
ORDER BY bucket
