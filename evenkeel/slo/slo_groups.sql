-- The values that some columns of requests had together, those that are known first, then those with
-- most requests; `num_groups` counts all. A request without one of them is in no group.
SELECT
    arrayMap(name -> multiIf(
        name = 'model', toString(model), name = 'tenant', toString(tenant),
        name = 'slo_class', toString(slo_class), name = 'route', toString(route),
        name = 'prompt_name', toString(prompt_name),
        name = 'prompt_version', toString(prompt_version), toString(engine)
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
    AND ({engine:String} = '' OR engine = {engine:String})
    AND arrayAll(
        (column, pattern, excludes) -> match(multiIf(
            column = 'model', toString(model), column = 'tenant', toString(tenant),
            column = 'slo_class', toString(slo_class), column = 'route', toString(route),
            column = 'prompt_name', toString(prompt_name),
            column = 'prompt_version', toString(prompt_version), toString(engine)
        ), pattern) != excludes,
        {filter_column:Array(String)}, {filter_pattern:Array(String)}, {filter_excludes:Array(UInt8)}
    )
GROUP BY group_values
HAVING arrayAll(value -> lengthUTF8(value) BETWEEN 1 AND {longest:UInt32}, group_values)
ORDER BY
    has({known:Array(String)}, arrayStringConcat(group_values, {separator:String})) DESC,
    sum(num_requests) DESC, group_values
LIMIT {most:UInt32}
