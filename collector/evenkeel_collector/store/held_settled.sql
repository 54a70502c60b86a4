-- Earlier decisions on held requests of the same traces.
SELECT trace_id, span_id, is_counted
FROM settled_requests
WHERE settled_at >= fromUnixTimestamp64Milli({since_ms:Int64}, 'UTC')
    AND trace_id GLOBAL IN (
        SELECT trace_id FROM {held:Identifier}
        WHERE held_at BETWEEN fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
            AND fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC'))
LIMIT {limit:UInt32}
