-- One latency measure by cohort over a long range of whole minutes, from the minute rollup.
-- The rollup stores each measure's quantiles in its own column; `column` selects one. Only requests that have
-- the measure are counted: a digest holds its number of values as the weights of its centroids. Its bytes are
-- a flag, then, unless it is empty, what the state of groupArray has: a length and 8 bytes for each, of which
-- the upper 4 are the weight.
WITH
    quantilesTDigestMergeState(0.5, 0.95, 0.99)({column:Identifier}) AS digest,
    CAST(digest, 'String') AS bytes,
    CAST(if(length(bytes) > 1, substring(bytes, 2), '\0'), 'AggregateFunction(groupArray, UInt64)') AS centroids
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
    arraySum(centroid -> reinterpretAsFloat32(toUInt32(bitShiftRight(centroid, 32))),
        finalizeAggregation(centroids)) AS num_requests,
    finalizeAggregation(digest) AS found,
    found[1] AS p50_s, found[2] AS p95_s, found[3] AS p99_s,
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
