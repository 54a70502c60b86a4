-- Tokens of sound have other prices than those of text, which price files do not have.
ALTER TABLE requests ADD COLUMN IF NOT EXISTS audio_tokens Nullable(UInt32);

-- Models of a session, of which an agent asks several: up to 100. Rows of earlier versions have none.
ALTER TABLE session_parts ADD COLUMN IF NOT EXISTS models SimpleAggregateFunction(groupUniqArrayArray(100), Array(String));

-- As before, with the models.
ALTER TABLE requests_to_session_parts MODIFY QUERY
SELECT
    ifNull(requests.tenant, '') AS tenant,
    ifNull(requests.session_id, requests.trace_id) AS session_id,
    'request' AS kind,
    isNull(requests.session_id) OR ifNull(requests.session_source = 'trace', 0) AS is_trace,
    toDate(time) AS day,
    min(multiIf(isNull(requests.session_id), 3, requests.session_source = 'trace', 3,
        requests.session_source = 'chain', 4, requests.session_source = 'attribute', 2,
        requests.source = 'evenkeel', 1, 2)) AS source,
    min(time) AS start,
    max(fromUnixTimestamp64Nano(end_ns, 'UTC')) AS end,
    intervalLengthSumState(toUnixTimestamp64Nano(time), end_ns) AS busy,
    count() AS num,
    countIf(status = 'ok') AS num_ok,
    countIf(status = 'error') AS num_error,
    countIf(status = 'aborted') AS num_aborted,
    countIf(status = 'shed') AS num_shed,
    sum(requests.input_tokens) AS input_tokens,
    sum(requests.output_tokens) AS output_tokens,
    sum(requests.cached_tokens) AS cached_tokens,
    sum(requests.wasted_tokens) AS wasted_tokens,
    sum(ifNull(e2e_s, 0)) AS sum_s,
    sum(ifNull(requests.queue_s, 0)) AS queue_s,
    sum(ifNull(requests.prefill_s, 0)) AS prefill_s,
    sum(ifNull(requests.decode_s, 0)) AS decode_s,
    sum(requests.recompute_s) AS recompute_s,
    countIf(requests.recompute_s > 0) AS num_evicted,
    sum(requests.cost) AS cost,
    max(ifNull(requests.currency, '')) AS currency,
    max(requests.model) AS model,
    groupUniqArray(100)(toString(requests.model)) AS models,
    max(ifNull(requests.slo_class, '')) AS slo_class,
    max(ifNull(requests.route, '')) AS route,
    argMaxState(CAST(status, 'String'), fromUnixTimestamp64Nano(end_ns, 'UTC')) AS last_status
FROM (
    SELECT *, toUnixTimestamp64Nano(time) + toInt64(ifNull(e2e_s, 0) * 1e9) AS end_ns
    FROM requests
    WHERE isNotNull(session_id) OR (source != 'evenkeel' AND trace_id != '')
) AS requests
GROUP BY tenant, session_id, kind, is_trace, day;

-- As before, with the column above: a view keeps the columns that its tables had.
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
