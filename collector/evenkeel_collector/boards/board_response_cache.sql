-- Requests per second by what the response cache did.
SELECT
    $__timeInterval(time) AS time,
    response_cache AS outcome,
    sum(if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1)) / $__interval_s AS requests
FROM evenkeel.requests
WHERE $__timeFilter(requests.time)
  AND $__conditionalAll(tenant IN (${tenant:sqlstring}), $tenant)
  AND $__conditionalAll(model IN (${model:sqlstring}), $model)
  AND $__conditionalAll(route IN (${route:sqlstring}), $route)
  AND isNotNull(response_cache)
GROUP BY time, outcome
ORDER BY time, outcome
