-- The newest first appearance of a prompt's version within a span, where another came before it, among
-- the requests that an SLO selects. What evaluations ask, their drift sentinel included, changes no prompt.
SELECT prompt_name, prompt_version, before, first_ns
FROM
(
    SELECT
        prompt_name,
        prompt_version,
        toUnixTimestamp64Nano(min(time)) AS first_ns,
        lagInFrame(toString(prompt_version)) OVER (PARTITION BY prompt_name ORDER BY min(time))
            AS before
    FROM requests
    WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
        AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
        AND prompt_name IS NOT NULL
        AND prompt_name != 'evenkeel-sentinel'
        AND ({route:String} = 'eval' OR ifNull(route, '') != 'eval')
        AND prompt_version IS NOT NULL
        AND ({model:String} = '' OR model = {model:String})
        AND ({tenant:String} = '' OR tenant = {tenant:String})
        AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
        AND ({route:String} = '' OR route = {route:String})
        AND ({prompt_name:String} = '' OR prompt_name = {prompt_name:String})
        AND ({engine:String} = '' OR engine = {engine:String})
        AND arrayAll(
            (column, pattern, excludes) -> match(multiIf(
                column = 'model', toString(model), column = 'tenant', toString(ifNull(tenant, '')),
                column = 'slo_class', toString(ifNull(slo_class, '')),
                column = 'route', toString(ifNull(route, '')),
                column = 'prompt_name', toString(ifNull(prompt_name, '')),
                toString(ifNull(engine, ''))
            ), pattern) != excludes,
            {filter_column:Array(String)}, {filter_pattern:Array(String)},
            {filter_excludes:Array(UInt8)}
        )
    GROUP BY prompt_name, prompt_version
)
WHERE before != ''
ORDER BY first_ns DESC
LIMIT 1
