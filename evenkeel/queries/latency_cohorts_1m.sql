-- One latency measure by cohort over a long range, from the minute rollup; ends are whole minutes.
-- The rollup's quantiles of each measure are kept apart, so the measure chooses a column.
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
    quantilesTDigestMerge(0.5, 0.95, 0.99)(multiIf(
        {measure:String} = 'ttft', r.ttft_s,
        {measure:String} = 'tpot', r.tpot_s,
        {measure:String} = 'itl', r.itl_p99_s,
        {measure:String} = 'stall', r.stall_s,
        {measure:String} = 'queue', r.queue_s,
        r.e2e_s)) AS found,
    found[1] AS p50_s, found[2] AS p95_s, found[3] AS p99_s,
    toUnixTimestamp(max(r.minute)) * 1000 AS newest_ms
FROM requests_1m AS r
WHERE minute >= toDateTime(intDiv({from_ms:Int64}, 1000))
    AND minute < toDateTime(intDiv({to_ms:Int64} + 999, 1000))
    AND ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
GROUP BY cohort
ORDER BY num_requests DESC, cohort
LIMIT 40
