-- Tenants, the busiest first.
SELECT
    tenant,
    sum(num_requests) AS requests,
    (sum(num_error) + sum(num_shed)) / nullIf(requests, 0) AS error_ratio,
    if(isNaN(quantilesTDigestMerge(0.5, 0.95, 0.99)(ttft_s)[2]), NULL, quantilesTDigestMerge(0.5, 0.95, 0.99)(ttft_s)[2]) AS ttft_p95_s,
    if(isNaN(quantilesTDigestMerge(0.5, 0.95, 0.99)(e2e_s)[2]), NULL, quantilesTDigestMerge(0.5, 0.95, 0.99)(e2e_s)[2]) AS e2e_p95_s,
    sum(output_tokens) AS output_total,
    sum(wasted_tokens) AS wasted_total,
    sum(cached_tokens) / nullIf(sum(cacheable_tokens), 0) AS cached_ratio
FROM evenkeel.requests_1m
WHERE $__timeFilter(minute)
  AND $__conditionalAll(tenant IN (${tenant:sqlstring}), $tenant)
  AND $__conditionalAll(model IN (${model:sqlstring}), $model)
  AND $__conditionalAll(route IN (${route:sqlstring}), $route)
GROUP BY tenant
ORDER BY requests DESC
LIMIT 100
