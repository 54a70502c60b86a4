-- Earlier decisions on held requests of the same traces: those that count. Versions before migration 42 did not
-- write down the tenant.
SELECT trace_id, span_id, ifNull(tenant, '') AS of_tenant
FROM settled_requests
WHERE settled_at >= fromUnixTimestamp64Milli({since_ms:Int64}, 'UTC')
    AND trace_id GLOBAL IN (
        SELECT trace_id FROM {held:Identifier}
        WHERE held_at BETWEEN fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
            AND fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC'))
GROUP BY trace_id, span_id, of_tenant
HAVING argMax(is_counted, settled_at)
LIMIT {of_one:UInt32} BY trace_id, of_tenant
LIMIT {limit:UInt32}
