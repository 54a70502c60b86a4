-- Quantiles of a latency, `{column}`, merged from the minutes' digests.
WITH quantilesTDigestMerge(0.5, 0.95, 0.99)({column}) AS merged
SELECT
    $__timeInterval(minute) AS time,
    if(isNaN(merged[1]), NULL, merged[1]) AS p50,
    if(isNaN(merged[2]), NULL, merged[2]) AS p95,
    if(isNaN(merged[3]), NULL, merged[3]) AS p99
FROM evenkeel.requests_1m
WHERE $__timeFilter(minute)
  AND $__conditionalAll(tenant IN (${tenant:sqlstring}), $tenant)
  AND $__conditionalAll(model IN (${model:sqlstring}), $model)
  AND $__conditionalAll(route IN (${route:sqlstring}), $route)
GROUP BY time
ORDER BY time
