-- As before, with the requests of others whose session is their trace: these have no session_id.
-- The requests, tool calls and agents of one session, in order: of its ID, and of the traces that it names.
CREATE OR REPLACE VIEW session_turns AS
WITH
    traces AS (
        SELECT trace_id FROM session_traces
        WHERE session_id = {session_id:String} AND tenant = {tenant:String}
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
    AND ((session_id = {session_id:String} AND tenant = {tenant:String}) OR (is_trace AND session_id GLOBAL IN traces));
