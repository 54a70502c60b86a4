-- As before, but calls of tools and agents that have a session's ID and no tenant are in the session of that
-- ID if all its requests are of one tenant: an SDK's spans know their session, and only the requests' header
-- knows the tenant. The tenant itself sees none of them, because they are not its rows.
CREATE OR REPLACE VIEW session_parts_named AS
WITH
    -- Without such calls or without tenants, nothing below is read.
    (SELECT count() FROM (SELECT 1 FROM session_parts WHERE tenant != '' LIMIT 1)) > 0
        AND (
            SELECT count()
            FROM (SELECT 1 FROM session_parts WHERE tenant = '' AND kind != 'request' LIMIT 1)
        ) > 0 AS may_own,
    owners AS (
        SELECT session_id, max(tenant) AS owner
        FROM session_parts
        WHERE may_own AND tenant != '' AND kind = 'request' AND NOT is_trace
            AND session_id GLOBAL IN (
                SELECT session_id
                FROM session_parts
                WHERE may_own AND tenant = '' AND NOT is_trace
                GROUP BY session_id
                HAVING NOT max(kind = 'request')
            )
        GROUP BY session_id
        HAVING uniqExact(tenant) = 1
    )
SELECT *
FROM session_parts
WHERE NOT is_trace AND (NOT may_own OR tenant != '' OR kind = 'request')
UNION ALL
SELECT parts.* REPLACE (
    CAST(if(parts.tenant = '' AND parts.kind != 'request', owners.owner, parts.tenant),
        'String') AS tenant)
FROM (
    SELECT *
    FROM session_parts
    WHERE may_own AND NOT is_trace AND tenant = '' AND kind != 'request'
    UNION ALL
    SELECT parts.* REPLACE (
        CAST(if(names.name.2 = '', parts.tenant, names.name.1), 'String') AS tenant,
        if(names.name.2 = '', parts.session_id, names.name.2) AS session_id,
        if(names.name.2 = '', parts.source, toUInt8(least(parts.source, 2))) AS source)
    FROM (SELECT * FROM session_parts WHERE is_trace) AS parts
    LEFT JOIN (
        SELECT trace_id, as_tenant, min((CAST(tenant, 'String'), session_id)) AS name
        FROM session_traces
        WHERE trace_id GLOBAL IN (SELECT session_id FROM session_parts WHERE is_trace)
        GROUP BY trace_id, as_tenant
    ) AS names ON names.trace_id = parts.session_id AND names.as_tenant = parts.tenant
) AS parts
LEFT JOIN owners ON owners.session_id = parts.session_id;

CREATE OR REPLACE VIEW session_turns AS
WITH
    (
        SELECT uniqExact(session_parts.tenant) = 1 AND max(session_parts.tenant) = {tenant:String}
        FROM session_parts
        WHERE session_id = {session_id:String} AND kind = 'request' AND NOT is_trace
    ) AS is_only_tenant,
    traces AS (
        SELECT trace_id FROM session_traces
        WHERE session_id = {session_id:String}
            AND (tenant = {tenant:String} OR (tenant = '' AND is_only_tenant))
    ),
    (
        SELECT (min(start), max(end))
        FROM session_parts
        WHERE tenant IN ({tenant:String}, '') AND (session_id = {session_id:String} OR session_id GLOBAL IN traces)
    ) AS bounds
SELECT
    'request' AS kind,
    time AS start,
    time + toIntervalNanosecond(toInt64(ifNull(e2e_s, 0) * 1e9)) AS end,
    ifNull(e2e_s, 0) AS duration_s,
    CAST(model, 'String') AS name,
    CAST(status, 'String') AS status,
    CAST(service, 'String') AS service,
    trace_id,
    span_id,
    ifNull(parent_span_id, '') AS parent_span_id,
    request_id,
    CAST(source, 'String') AS source,
    CAST(finish_reason, 'Nullable(String)') AS finish_reason,
    CAST(error_type, 'Nullable(String)') AS error_type,
    input_tokens,
    output_tokens,
    cached_tokens,
    ttft_s,
    queue_s,
    prefill_s,
    decode_s,
    recompute_s,
    prefix_evicted_s,
    cost,
    ledger
FROM requests
WHERE time BETWEEN bounds.1 AND bounds.2
    AND ifNull(tenant, '') IN ({tenant:String}, '')
    AND ((session_id = {session_id:String} AND ifNull(tenant, '') = {tenant:String})
        OR (isNull(session_id) AND source != 'evenkeel' AND trace_id = {session_id:String}
            AND ifNull(tenant, '') = {tenant:String})
        OR (ifNull(session_id, trace_id) GLOBAL IN traces))
UNION ALL
SELECT
    CAST(kind, 'String') AS kind,
    time AS start,
    time + toIntervalNanosecond(toInt64(least(duration_s, 1e6) * 1e9)) AS end,
    duration_s,
    CAST(name, 'String') AS name,
    CAST(status, 'String') AS status,
    CAST(service, 'String') AS service,
    trace_id,
    span_id,
    parent_span_id,
    '' AS request_id,
    '' AS source,
    NULL AS finish_reason,
    NULL AS error_type,
    NULL AS input_tokens,
    NULL AS output_tokens,
    NULL AS cached_tokens,
    NULL AS ttft_s,
    NULL AS queue_s,
    NULL AS prefill_s,
    NULL AS decode_s,
    NULL AS recompute_s,
    NULL AS prefix_evicted_s,
    NULL AS cost,
    CAST(map(), 'Map(LowCardinality(String), Float64)') AS ledger
FROM session_tools
WHERE tenant IN ({tenant:String}, '')
    AND ((session_id = {session_id:String} AND tenant = {tenant:String}) OR (is_trace AND session_id GLOBAL IN traces)
        OR (session_id = {session_id:String} AND tenant = '' AND NOT is_trace AND is_only_tenant));
