-- What the costs of `session_parts` lack of those of stored requests, by the keys of the view
-- `requests_to_session_parts`, on each day with requests that meet the condition. A session some of whose
-- requests were deleted keeps its cost. The other columns have no effect on a session.
SELECT
    tenant,
    session_id,
    kind,
    is_trace,
    day,
    toUInt8(4) AS source,
    min(each.start) AS start,
    min(each.start) AS end,
    ifNull(sumIf(each.cost, is_request), 0) - ifNull(sumIf(each.cost, NOT is_request), 0) AS cost,
    max(each.currency) AS currency
FROM (
    SELECT
        1 AS is_request,
        ifNull(requests.tenant, '') AS tenant,
        ifNull(requests.session_id, requests.trace_id) AS session_id,
        'request' AS kind,
        isNull(requests.session_id) OR ifNull(requests.session_source = 'trace', 0) AS is_trace,
        toDate(time) AS day,
        time AS start,
        toInt64(1) AS num,
        requests.cost AS cost,
        ifNull(requests.currency, '') AS currency
    FROM requests
    WHERE toDate(time) GLOBAL IN (SELECT toDate(time) FROM requests WHERE $condition)
        AND (isNotNull(requests.session_id) OR (source != 'evenkeel' AND trace_id != ''))
    UNION ALL
    SELECT 0, tenant, session_id, kind, is_trace, day, start, -toInt64(num), cost, ''
    FROM session_parts
    WHERE kind = 'request' AND day GLOBAL IN (SELECT toDate(time) FROM requests WHERE $condition)
) AS each
GROUP BY tenant, session_id, kind, is_trace, day
HAVING sum(num) = 0
    AND (cost != 0 OR countIf(is_request AND isNotNull(each.cost)) > 0
        AND countIf(NOT is_request AND isNotNull(each.cost)) = 0)
