-- Requests of clients that count, though a server's record of their call, or of another call in their trace,
-- is there: it may have come after the decision. The newest first.
WITH
    counted AS (
        SELECT trace_id, span_id, tenant
        FROM {settled:Identifier}
        WHERE settled_at >= fromUnixTimestamp64Milli({since_ms:Int64}, 'UTC') AND is_counted
        ORDER BY settled_at DESC
        LIMIT {limit:UInt32}
    ),
    mine AS (
        SELECT trace_id, span_id, request_id, ifNull(tenant, '') AS of_tenant,
            toUnixTimestamp64Milli(held_at) AS held_ms, toUnixTimestamp(time) AS time_s
        FROM {held:Identifier}
        WHERE held_at >= fromUnixTimestamp64Milli({held_since_ms:Int64}, 'UTC')
            -- Versions before migration 42 did not write down the tenant.
            AND ((trace_id, span_id, of_tenant) IN (
                    SELECT trace_id, span_id, assumeNotNull(tenant) FROM counted WHERE isNotNull(tenant))
                OR (trace_id, span_id) IN (SELECT trace_id, span_id FROM counted WHERE isNull(tenant)))
    ),
    served AS (
        SELECT trace_id, request_id
        FROM requests
        WHERE toStartOfFiveMinutes(time) GLOBAL IN (
                SELECT arrayJoin([
                    toStartOfFiveMinutes(toDateTime(time_s - 300, 'UTC')),
                    toStartOfFiveMinutes(toDateTime(time_s, 'UTC')),
                    toStartOfFiveMinutes(toDateTime(time_s + 300, 'UTC'))])
                FROM mine)
            AND source NOT IN {client_sources:Array(String)}
            AND (trace_id GLOBAL IN (SELECT trace_id FROM mine)
                OR request_id GLOBAL IN (SELECT request_id FROM mine WHERE request_id != ''))
        LIMIT {limit:UInt32}
    )
SELECT trace_id, span_id, request_id, of_tenant, held_ms, time_s
FROM mine
WHERE (trace_id IN (SELECT trace_id FROM served)
        OR (request_id != '' AND request_id IN (SELECT request_id FROM served)))
    AND (trace_id, span_id, of_tenant) NOT IN (
        SELECT trace_id, span_id, ifNull(tenant, '')
        FROM {settled:Identifier}
        WHERE settled_at >= fromUnixTimestamp64Milli({since_ms:Int64}, 'UTC')
            AND startsWith(batch, 'withdrawn-')
    )
ORDER BY held_ms DESC
LIMIT 1 BY trace_id, span_id, of_tenant
LIMIT {most:UInt32}
SETTINGS use_skip_indexes = 0
