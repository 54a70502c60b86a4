-- Share of prompt tokens found in the prefix cache, and of drafted tokens accepted.
SELECT
    $__timeInterval(minute) AS time,
    sum(cached_tokens) / nullIf(sum(cacheable_tokens), 0) AS cached,
    sum(accepted_tokens) / nullIf(sum(drafted_tokens), 0) AS accepted
FROM evenkeel.requests_1m
WHERE $__timeFilter(minute)
  AND $__conditionalAll(tenant IN (${tenant:sqlstring}), $tenant)
  AND $__conditionalAll(model IN (${model:sqlstring}), $model)
  AND $__conditionalAll(route IN (${route:sqlstring}), $route)
GROUP BY time
ORDER BY time
