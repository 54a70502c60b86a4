-- Requests that servers traced, in the same traces or under the same request ids, at about that time.
SELECT trace_id, span_id, request_id, ifNull(tenant, '') AS of_tenant
FROM requests
WHERE toStartOfFiveMinutes(time) IN {around:Array(DateTime('UTC'))}
    AND source NOT IN {client_sources:Array(String)}
    AND (trace_id GLOBAL IN (
            SELECT trace_id FROM {held:Identifier}
            WHERE held_at BETWEEN fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
                AND fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC'))
        OR request_id GLOBAL IN (
            SELECT request_id FROM {held:Identifier}
            WHERE request_id != ''
                AND held_at BETWEEN fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
                    AND fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')))
LIMIT {of_one:UInt32} BY trace_id, of_tenant
LIMIT {limit:UInt32}
