-- Mean seconds of each phase, of requests that got a token.
SELECT
    $__timeInterval(minute) AS time,
    sum(queue_sum_s) / nullIf(sum(num_queue), 0) AS queue,
    sum(prefill_sum_s) / nullIf(sum(num_prefill), 0) AS prefill,
    sum(decode_sum_s) / nullIf(sum(num_decode), 0) AS decode
FROM evenkeel.requests_1m
WHERE $__timeFilter(minute)
  AND $__conditionalAll(tenant IN (${tenant:sqlstring}), $tenant)
  AND $__conditionalAll(model IN (${model:sqlstring}), $model)
  AND $__conditionalAll(route IN (${route:sqlstring}), $route)
GROUP BY time
ORDER BY time
