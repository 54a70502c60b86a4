-- One latency measure by step and cohort over a long range, from the minute rollup.
SELECT
    toStartOfInterval(r.minute, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
    multiIf(
        {dimension:String} = 'model', toString(model),
        {dimension:String} = 'tenant', if(tenant = '', 'none', toString(tenant)),
        {dimension:String} = 'slo_class', if(slo_class = '', 'none', toString(slo_class)),
        {dimension:String} = 'route', if(route = '', 'none', toString(route)),
        {dimension:String} = 'prompt',
            if(prompt_name = '', 'none',
                concat(prompt_name, '@', if(prompt_version = '', '?', prompt_version))),
        ''
    ) AS cohort,
    quantilesTDigestMerge(0.5, 0.95, 0.99)({column:Identifier}) AS found,
    found[1] AS p50_s, found[2] AS p95_s, found[3] AS p99_s
FROM requests_rolled(from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64}, step_s = {step_s:UInt32}) AS r
WHERE ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
    AND cohort IN {cohorts:Array(String)}
GROUP BY bucket, cohort
ORDER BY bucket, cohort
