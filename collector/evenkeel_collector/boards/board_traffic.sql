-- Requests per second by status.
SELECT
    $__timeInterval(minute) AS time,
    sum(num_ok) / $__interval_s AS ok,
    sum(num_error) / $__interval_s AS error,
    sum(num_aborted) / $__interval_s AS aborted,
    sum(num_shed) / $__interval_s AS shed
FROM evenkeel.requests_1m
WHERE $__timeFilter(minute)
  AND $__conditionalAll(tenant IN (${tenant:sqlstring}), $tenant)
  AND $__conditionalAll(model IN (${model:sqlstring}), $model)
  AND $__conditionalAll(route IN (${route:sqlstring}), $route)
GROUP BY time
ORDER BY time
