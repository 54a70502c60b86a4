-- Mean seconds per request by cause, over requests with a ledger.
SELECT time, cause, seconds / requests AS seconds_per_request
FROM
(
    SELECT
        $__timeInterval(time) AS time,
        tupleElement(charge, 1) AS cause,
        sum(tupleElement(charge, 2) * weight) AS seconds,
        sum(sum(if(is_first, weight, 0))) OVER (PARTITION BY time) AS requests
    FROM
    (
        SELECT
            requests.time AS time,
            if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1) AS weight,
            arrayJoin(arrayZip(arrayEnumerate(mapKeys(ledger)), mapKeys(ledger), mapValues(ledger)))
                AS entry,
            (tupleElement(entry, 2), tupleElement(entry, 3)) AS charge,
            tupleElement(entry, 1) = 1 AS is_first
        FROM evenkeel.requests
        WHERE $__timeFilter(requests.time)
          AND $__conditionalAll(tenant IN (${tenant:sqlstring}), $tenant)
          AND $__conditionalAll(model IN (${model:sqlstring}), $model)
          AND $__conditionalAll(route IN (${route:sqlstring}), $route)
    )
    GROUP BY time, cause
)
ORDER BY time, cause
