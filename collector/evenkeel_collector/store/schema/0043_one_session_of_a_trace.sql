-- As before, but what has only a trace, which several sessions name, is a turn of one of them, as it is in
-- one row of `sessions`.
CREATE OR REPLACE VIEW session_turns AS
WITH
    (
        SELECT uniqExact(session_parts.tenant) = 1 AND max(session_parts.tenant) = {tenant:String}
        FROM session_parts
        WHERE session_id = {session_id:String} AND kind = 'request' AND NOT is_trace
    ) AS is_only_tenant,
    -- Of the traces that this session names, those that are not in another session that names them too: the
    -- same ones as in `session_parts_named`.
    traces AS (
        SELECT trace_id, toString(as_tenant) AS of_tenant, min((CAST(tenant, 'String'), session_id)) AS name
        FROM session_traces
        WHERE trace_id GLOBAL IN (
            SELECT trace_id FROM session_traces
            WHERE session_id = {session_id:String} AND tenant IN ({tenant:String}, '')
        )
        GROUP BY trace_id, of_tenant
        HAVING name = ({tenant:String}, {session_id:String})
            OR (name = ('', {session_id:String}) AND is_only_tenant)
    ),
    (
        SELECT (min(start), max(end))
        FROM session_parts
        WHERE tenant IN ({tenant:String}, '') AND (session_id = {session_id:String} OR session_id GLOBAL IN (SELECT trace_id FROM traces))
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
        OR (if(isNull(session_id), source != 'evenkeel', ifNull(session_source = 'trace', 0))
            AND (ifNull(session_id, trace_id), toString(ifNull(tenant, ''))) GLOBAL IN (
                SELECT trace_id, of_tenant FROM traces
                WHERE name = ({tenant:String}, {session_id:String}))))
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
    AND ((session_id = {session_id:String} AND tenant = {tenant:String})
        OR (is_trace AND (session_id, toString(tenant)) GLOBAL IN (SELECT trace_id, of_tenant FROM traces))
        OR (session_id = {session_id:String} AND tenant = '' AND NOT is_trace AND is_only_tenant));
