-- Requests per second of the ten busiest tenants.
SELECT
    $__timeInterval(minute) AS time,
    if(tenant = '', 'none', tenant) AS tenant,
    sum(num_requests) / $__interval_s AS requests
FROM evenkeel.requests_1m
WHERE $__timeFilter(minute)
  AND $__conditionalAll(requests_1m.tenant IN (${tenant:sqlstring}), $tenant)
  AND $__conditionalAll(model IN (${model:sqlstring}), $model)
  AND $__conditionalAll(route IN (${route:sqlstring}), $route)
  AND requests_1m.tenant IN
  (
      SELECT tenant FROM evenkeel.requests_1m WHERE $__timeFilter(minute)
      GROUP BY tenant ORDER BY sum(num_requests) DESC LIMIT 10
  )
GROUP BY time, tenant
ORDER BY time, tenant
