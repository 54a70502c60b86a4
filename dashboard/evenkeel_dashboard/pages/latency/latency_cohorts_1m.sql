-- One latency measure by cohort over a long range of whole minutes, from the minute rollup.
-- The rollup stores each measure's quantiles in its own column; `column` selects one.
SELECT
    multiIf(
        {dimension:String} = 'model', toString(model),
        {dimension:String} = 'tenant', if(tenant = '', 'none', toString(tenant)),
        {dimension:String} = 'slo_class', if(slo_class = '', 'none', toString(slo_class)),
        {dimension:String} = 'route', if(route = '', 'none', toString(route)),
        {dimension:String} = 'prompt',
            if(prompt_name = '', 'none', concat(prompt_name, '@', prompt_version)),
        ''
    ) AS cohort,
    sum(r.num_requests) AS num_requests,
    quantilesTDigestMerge(0.5, 0.95, 0.99)({column:Identifier}) AS found,
    found[1] AS p50_s, found[2] AS p95_s, found[3] AS p99_s,
    toUnixTimestamp(max(r.minute)) * 1000 AS newest_ms
FROM requests_rolled(from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64}, step_s = 3600) AS r
WHERE ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
GROUP BY cohort
ORDER BY num_requests DESC, cohort
LIMIT 40
