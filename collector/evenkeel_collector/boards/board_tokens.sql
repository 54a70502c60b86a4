-- Tokens per second by kind.
SELECT
    $__timeInterval(minute) AS time,
    sum(input_tokens) / $__interval_s AS input,
    sum(cached_tokens) / $__interval_s AS cached,
    sum(output_tokens) / $__interval_s AS output,
    sum(wasted_tokens) / $__interval_s AS wasted
FROM evenkeel.requests_1m
WHERE $__timeFilter(minute)
  AND $__conditionalAll(tenant IN (${tenant:sqlstring}), $tenant)
  AND $__conditionalAll(model IN (${model:sqlstring}), $model)
  AND $__conditionalAll(route IN (${route:sqlstring}), $route)
GROUP BY time
ORDER BY time
