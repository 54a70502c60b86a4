-- Held requests without a decision, oldest first. Versions before migration 42 did not write down the tenant.
SELECT
    trace_id, span_id, request_id, ifNull(tenant, '') AS of_tenant,
    toUnixTimestamp64Nano(time) AS start_ns,
    toUnixTimestamp64Nano(time) + toInt64(e2e_s * 1e9) AS end_ns,
    toUnixTimestamp64Milli(held_at) AS held_ms, toUnixTimestamp(time) AS time_s
FROM {held:Identifier}
WHERE held_at >= fromUnixTimestamp64Milli({since_ms:Int64}, 'UTC')
    AND (trace_id, span_id, of_tenant) NOT IN (
        SELECT trace_id, span_id, assumeNotNull(tenant) FROM {settled:Identifier}
        WHERE settled_at >= fromUnixTimestamp64Milli({since_ms:Int64}, 'UTC') AND isNotNull(tenant)
    )
    AND (trace_id, span_id) NOT IN (
        SELECT trace_id, span_id FROM {settled:Identifier}
        WHERE settled_at >= fromUnixTimestamp64Milli({since_ms:Int64}, 'UTC') AND isNull(tenant)
    )
ORDER BY held_at
LIMIT {limit:UInt32}
