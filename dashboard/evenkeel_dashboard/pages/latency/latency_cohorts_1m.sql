-- One latency measure by cohort over a long range of whole minutes, from the minute rollup.
-- The rollup stores each measure's quantiles in its own column; `column` selects one. Only requests that have
-- the measure are counted: a digest holds its number of values as the weights of its centroids, each a pair
-- of 4-byte floats behind a flag and a length of 1 or 2 bytes.
WITH
    quantilesTDigestMergeState(0.5, 0.95, 0.99)({column:Identifier}) AS digest,
    CAST(digest, 'String') AS bytes,
    2 + (length(bytes) - 1) % 8 AS begin
SELECT
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
    arraySum(i -> reinterpretAsFloat32(substring(bytes, begin + 8 * i + 4, 4)),
        range(intDiv(length(bytes) - 1, 8))) AS num_requests,
    finalizeAggregation(digest) AS found,
    found[1] AS p50_s, found[2] AS p95_s, found[3] AS p99_s,
    toUnixTimestamp(max(r.minute)) * 1000 AS newest_ms,
    count() OVER () AS num_cohorts
FROM requests_rolled(from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64}, step_s = 3600) AS r
WHERE ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
GROUP BY cohort
HAVING num_requests > 0
ORDER BY num_requests DESC, cohort
LIMIT 400
