-- The values that some columns of requests had together, those that are known first, then those with
-- most requests; `num_groups` counts all. A request without one of them is in no group.
SELECT
    arrayMap(name -> multiIf(
        name = 'model', toString(model), name = 'tenant', toString(tenant),
        name = 'slo_class', toString(slo_class), name = 'route', toString(route),
        name = 'prompt_name', toString(prompt_name), toString(prompt_version)
    ), {columns:Array(String)}) AS group_values,
    toUnixTimestamp(min({time:Identifier})) AS first_s,
    toUnixTimestamp(max({time:Identifier})) AS last_s,
    count() OVER () AS num_groups
FROM {table:Identifier}
WHERE {time:Identifier} >= toDateTime({from_s:UInt32})
    AND {time:Identifier} <= toDateTime({to_s:UInt32})
    AND ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
    AND ({route:String} = '' OR route = {route:String})
    AND ({prompt_name:String} = '' OR prompt_name = {prompt_name:String})
    AND ({prompt_version:String} = '' OR prompt_version = {prompt_version:String})
    AND arrayAll(
        each -> match(multiIf(
            each[1] = 'model', toString(model), each[1] = 'tenant', toString(tenant),
            each[1] = 'slo_class', toString(slo_class), each[1] = 'route', toString(route),
            each[1] = 'prompt_name', toString(prompt_name), toString(prompt_version)
        ), each[2]) != (each[3] = '1'),
        {filters:Array(Array(String))}
    )
GROUP BY group_values
HAVING arrayAll(value -> lengthUTF8(value) BETWEEN 1 AND {longest:UInt32}, group_values)
ORDER BY has({known:Array(Array(String))}, group_values) DESC, sum(num_requests) DESC, group_values
LIMIT {most:UInt32}
