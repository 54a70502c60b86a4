-- The slowest requests by time to first token, with the largest entry of their ledger.
WITH arraySort(x -> -tupleElement(x, 2), arrayZip(mapKeys(ledger), mapValues(ledger)))[1] AS largest
SELECT
    time,
    request_id,
    trace_id,
    tenant,
    model,
    route,
    status,
    ttft_s,
    e2e_s,
    queue_s,
    input_tokens,
    output_tokens,
    tupleElement(largest, 1) AS largest_cause,
    tupleElement(largest, 2) AS largest_cause_s
FROM evenkeel.requests
WHERE $__timeFilter(time)
  AND $__conditionalAll(tenant IN (${tenant:sqlstring}), $tenant)
  AND $__conditionalAll(model IN (${model:sqlstring}), $model)
  AND $__conditionalAll(route IN (${route:sqlstring}), $route)
  AND isNotNull(ttft_s)
ORDER BY ttft_s DESC
LIMIT 50
